"""What a person sees when something goes wrong: one sentence on stderr, and an exit status that says whose fault it was.

2: bad input. That is what click says of the words on the line, what the system says of files, and every ValueError,
TypeError and ImportError that our own code raised, since those are how it refuses what it was given. 1: anything else.
"""

from __future__ import annotations

import sys
import traceback
from types import TracebackType

import click

OK, FAULT, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130


def guarded(group: click.Group, argv: list[str]) -> int:
    """Runs the command and turns whatever it raises into a sentence and an exit status."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a terminal without Greek letters is no reason to fail
    debug = "--debug" in argv
    words = [word for word in argv if word != "--debug"]
    try:
        status = group.main(words, prog_name="tiltwalk", standalone_mode=False, obj=tuple(words))
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        return BAD_INPUT
    except click.ClickException as error:
        return say(sentence(error), BAD_INPUT)
    except (click.Abort, KeyboardInterrupt):
        return say("interrupted.", INTERRUPTED)
    except MemoryError as error:
        return say(f"this machine has too little memory for that ({error}).", BAD_INPUT, debug)
    except OSError as error:
        return say(of_system(error), BAD_INPUT, debug)
    except Exception as error:
        if isinstance(error, ValueError | TypeError | ImportError) and ours(error.__traceback__):
            return say(str(error), BAD_INPUT, debug)
        kind = f"{type(error).__name__}: {error}".splitlines()[0]
        return say(f"this is a fault of tiltwalk, please report it with what --debug prints ({kind}).", FAULT, debug)
    return status if isinstance(status, int) else OK


def say(text: str, status: int, debug: bool = False) -> int:
    """Prints the sentence, or the traceback of what is being handled."""
    if debug:
        traceback.print_exc()
    else:
        click.echo(f"tiltwalk: {plain(' '.join(text.split()))}", err=True)
    return status


def plain(text: str) -> str:
    """Text from a file as a terminal may be shown it: letters, and no control of the terminal."""
    return "".join(letter if letter.isprintable() or letter == "\n" else "\ufffd" for letter in text)


def sentence(error: click.ClickException) -> str:
    """What click has against a command line, and where its help is."""
    text = error.format_message().strip()
    context = getattr(error, "ctx", None)
    if context is None:
        return text
    text = text if text.endswith((".", "?", "!")) else text + "."
    return f"{text} See: {context.command_path} --help"


def of_system(error: OSError) -> str:
    """An error of the system, or one of our own sentences."""
    if error.filename is None or error.strerror is None:
        return str(error)
    return f"{error.filename}: {error.strerror}."


def ours(trace: TracebackType | None) -> bool:
    """Whether an error was raised by a line of this package, and not deep in a library."""
    name = ""
    while trace is not None:
        name = str(trace.tb_frame.f_globals.get("__name__", ""))
        trace = trace.tb_next
    return name.split(".")[0] == "tiltwalk"
