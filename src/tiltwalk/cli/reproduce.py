"""`tiltwalk reproduce NAME`: a figure of the paper."""

from __future__ import annotations

import time
from pathlib import Path

import click
from tqdm import tqdm

from tiltwalk import experiments


@click.command("reproduce")
@click.argument("name", type=click.Choice(experiments.NAMES), metavar="NAME")
@click.option("--quick/--full", help="A smaller figure, in a minute or two (mnist: four), or the whole one.  [default: full]")
@click.option(
    "--sampler",
    type=click.Choice(("paper", "sweeps", "best")),
    help="mnist: the paper's moves, or better ones.  [default: best]",
)
@click.option("--fresh", is_flag=True, help="mnist: make parts anew that an earlier run has kept.")
@click.option(
    "--out", type=click.Path(path_type=Path), default=Path("figures"), show_default=True, help="The folder to write to."
)
@click.option(
    "--seed", type=click.IntRange(0, 2**32 - 1), default=0, show_default=True, help="The same seed gives the same figure."
)
def command(name: str, quick: bool, sampler: str | None, fresh: bool, out: Path, seed: int) -> None:
    """Draw a figure of the paper.

    \b
    linear     loss per model against s: exact lines, and sampled points on them
    annealing  the loss while s climbs a staircase
    landscape  a path finding its way on both forms of Himmelblau's function
    mnist      LeNets on MNIST: loss and accuracy against s, and the paper's claims

    Writes OUT/NAME.png, OUT/NAME.svg, and OUT/NAME.json with the numbers, the settings, the seed and the versions.

    At full size mnist takes hours. It keeps each part in OUT/mnist_parts as soon as it is made: stop it with Ctrl-C, and
    the same command goes on from there. With --quick it writes mnist_quick, with --sampler paper mnist_paper.
    """
    began = time.perf_counter()
    with tqdm(total=100, disable=None, leave=False, bar_format="{desc} |{bar}| {percentage:.0f}% {elapsed}") as bar:

        def report(share: float, text: str) -> None:
            bar.set_description_str(text, refresh=False)
            bar.update(round(100 * share) - bar.n)
            bar.refresh()

        try:
            result = experiments.reproduce(name, quick=quick, out=out, seed=seed, report=report, sampler=sampler, fresh=fresh)
        except KeyboardInterrupt:
            if name in experiments.LONG:
                click.echo("\nThe parts that were made are kept: the same command goes on from there.", err=True)
            raise
    for line in result.summary:
        click.echo(line)
    click.echo(f"Wrote {', '.join(map(str, result.files))} in {time.perf_counter() - began:.0f} s.")
