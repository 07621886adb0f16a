"""`tiltwalk completion SHELL`: a script that lets a shell complete commands and options."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class


@click.command("completion")
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")), metavar="SHELL")
def command(shell: str) -> None:
    """Print the completion script of a shell: bash, zsh or fish.

    \b
    bash  eval "$(tiltwalk completion bash)"                                     in ~/.bashrc
    zsh   eval "$(tiltwalk completion zsh)"                                      in ~/.zshrc
    fish  tiltwalk completion fish > ~/.config/fish/completions/tiltwalk.fish
    """
    from tiltwalk.cli import tiltwalk

    made = get_completion_class(shell)
    assert made is not None
    click.echo(made(tiltwalk, {}, "tiltwalk", "_TILTWALK_COMPLETE").source())
