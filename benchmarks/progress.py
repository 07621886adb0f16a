"""python benchmarks/progress.py: see `tiltwalk.bench.progress`."""

import pathlib

from tiltwalk.bench.progress import main

if __name__ == "__main__":
    main(pathlib.Path(__file__).resolve().with_suffix(".json"))
