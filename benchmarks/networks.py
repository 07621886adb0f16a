"""python benchmarks/networks.py [folder with prototypes/]: see `tiltwalk.bench.networks`."""

import pathlib
import sys

from tiltwalk.bench.networks import main

here = pathlib.Path(__file__).resolve().parent
if __name__ == "__main__":
    shared = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else here.parent.parent / "shared"
    main(shared, here / "networks.json")
