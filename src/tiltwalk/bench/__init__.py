"""Benchmarks: each measures in one run, side by side, what it compares."""
