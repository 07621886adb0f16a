"""python benchmarks/runs.py [--quick]: see `tiltwalk.bench.runs`."""

import pathlib
import sys

from tiltwalk.bench.runs import main

if __name__ == "__main__":
    main(pathlib.Path(__file__).resolve().with_suffix(".json"), quick="--quick" in sys.argv)
