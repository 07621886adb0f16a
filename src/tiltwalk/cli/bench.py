"""`tiltwalk bench NAME`: measurements side by side, in one run, on this machine."""

from __future__ import annotations

from pathlib import Path

import click

NAMES = ("minibatch", "networks", "perceptron", "progress", "runs", "samplers")


@click.command("bench")
@click.argument("name", type=click.Choice(NAMES), metavar="NAME")
@click.option("--quick", is_flag=True, help="Shorter, and less to be trusted.")
@click.option("--only", help="networks, samplers: the parts whose name contains this.")
@click.option("--limit", type=click.FloatRange(min=1), help="samplers: seconds for each sampler of a network.")
@click.option("--shared", type=click.Path(path_type=Path), help="A folder with prototypes/ (and data/) to measure beside.")
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="A JSON file for the figures.")
def command(name: str, quick: bool, only: str | None, limit: float | None, shared: Path | None, out: Path | None) -> None:
    """Measure what this machine gives.

    \b
    minibatch   decisions on a part of MNIST's 60,000 images, beside those on all (--shared: the folder with data/mnist.npz)
    networks    losses of many networks: share of the machine's matrix product, beside Flax, PyTorch and others
    perceptron  updates and effective samples a second on the linear perceptron (needs --shared for its data)
    progress    what the progress line of a run costs
    runs        what a run folder costs: saves, memory over ten times the steps, going on against not having stopped
    samplers    effective samples a second beside BlackJAX, and seconds until networks are trained, by every sampler
    """
    if name == "networks" and limit is None:
        from tiltwalk.bench import networks

        networks.main(shared, out, quick, only)
        return
    if name == "samplers":
        from tiltwalk.bench import samplers

        samplers.main(shared, out, quick, only, limit)
        return
    if limit is not None:
        raise click.UsageError(f"--limit is for bench samplers; bench {name} takes the time that it takes.")
    if only is not None:
        raise click.UsageError(f"--only is for bench networks and samplers; bench {name} has no parts.")
    if name == "runs":
        from tiltwalk.bench import runs

        runs.main(out, quick)
        return
    if name == "progress":
        from tiltwalk.bench import progress

        progress.main(out, quick)
        return
    if name == "minibatch":
        from tiltwalk.bench import minibatch

        minibatch.main(None if shared is None else shared / "data", out, quick)
        return
    if shared is None:
        raise click.UsageError("bench perceptron needs --shared, the folder with data/perceptron_2.json")
    from tiltwalk.bench import perceptron

    perceptron.main(shared, out, quick)
