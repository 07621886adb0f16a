"""python benchmarks/samplers.py [folder with data/ and prototypes/]: see `tiltwalk.bench.samplers`."""

import pathlib
import sys

from tiltwalk.bench.samplers import main

here = pathlib.Path(__file__).resolve().parent
if __name__ == "__main__":
    shared = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else here.parent.parent / "shared"
    main(shared, here / "samplers.json")
