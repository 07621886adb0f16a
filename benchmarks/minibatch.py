"""python benchmarks/minibatch.py [folder with data/mnist.npz]: see `tiltwalk.bench.minibatch`."""

import pathlib
import sys

from tiltwalk.bench.minibatch import main

here = pathlib.Path(__file__).resolve().parent
if __name__ == "__main__":
    shared = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else here.parent.parent / "shared"
    main(shared / "data", here / "minibatch.json")
