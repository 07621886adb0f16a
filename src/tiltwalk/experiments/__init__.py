"""The figures of Mair, Rose and Garrahan (2022), one file each: numbers, a picture of them, and a caption.

    reproduce("linear", quick=True, out="figures")    # figures/linear.png, linear.svg, linear.json

A picture is drawn from what the JSON holds and from nothing else. A new figure is one new file with the functions of
`Experiment`, and its name in `NAMES`.
"""

from tiltwalk.experiments._common import LONG, NAMES, Experiment, Result, cores, line_data, load, reproduce, writable

__all__ = ["LONG", "NAMES", "Experiment", "Result", "cores", "line_data", "load", "reproduce", "writable"]
