"""The command line: parse, call, print. `tiltwalk --help` lists the commands.

Every command exits 0 on success and says what it wrote; 2 on bad input, with one sentence; 130 when interrupted and 143 when
terminated; 1 on a fault of our own, with a sentence that asks to report it. `--debug` shows the traceback in place of the
sentence.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from tiltwalk._version import __version__
from tiltwalk.cli.errors import guarded
from tiltwalk.cli.lazy import LazyGroup

COMMANDS = {
    "train": ("tiltwalk.cli.train", "Train an ensemble without gradients, and test it."),
    "resume": ("tiltwalk.cli.resume", "Go on with a run that was stopped or killed, or beyond its end."),
    "predict": ("tiltwalk.cli.predict", "Predict new samples: classes, probabilities, spread over the members."),
    "report": ("tiltwalk.cli.report", "Write a report on a run: one HTML file with figures, and a verdict in words."),
    "sweep": ("tiltwalk.cli.sweep", "Runs over a grid of settings, each in its own folder; goes on where it was stopped."),
    "reproduce": ("tiltwalk.cli.reproduce", "Draw a figure of the paper: PNG, SVG and a JSON of its numbers."),
    "exact": ("tiltwalk.cli.exact", "The linear perceptron in closed form: loss and log Z against s."),
    "bench": ("tiltwalk.cli.bench", "Measure losses of networks, or the sampler, on this machine."),
    "info": ("tiltwalk.cli.info", "A run: where it stands; or this machine: versions, devices, memory, extras."),
    "completion": ("tiltwalk.cli.completion", "Let a shell complete commands and options."),
}


@click.group(cls=LazyGroup, commands_at=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="tiltwalk", message="%(prog)s %(version)s")
@click.option("--debug", is_flag=True, expose_value=False, help="Show the traceback of an error. May stand anywhere.")
def tiltwalk() -> None:
    """Train neural-network ensembles without gradients, by sampling trajectories of models."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command and returns its exit status."""
    return guarded(tiltwalk, list(sys.argv[1:] if argv is None else argv))
