"""python benchmarks/perceptron.py [folder with data/ and prototypes/]: see `tiltwalk.bench.perceptron`."""

import pathlib
import sys

from tiltwalk.bench.perceptron import main

here = pathlib.Path(__file__).resolve().parent
if __name__ == "__main__":
    shared = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else here.parent.parent / "shared"
    main(shared, here / "perceptron.json")
