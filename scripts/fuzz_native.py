"""Random layer programs and shapes: every target of the kernel held to the plain path, to 1e-5.

    python scripts/fuzz_native.py [--programs 1000] [--seed 0] [--against plain | definition] [--targets avx512 plain]

For each program the outputs, the losses of single samples, and the mean losses; differences are relative to the largest value.
`definition` is the program's formula in NumPy, in double, which has nothing to compile. Gradients are compared with plain JAX's
in `make slow`. Exits 1 where something differs by more.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tests import native_cases as cases

from tiltwalk import native
from tiltwalk.native import library
from tiltwalk.networks import plain

ALLOWED = 1e-5
Found = dict[str, float]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--programs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0, help="of the first program; the others follow")
    parser.add_argument("--against", choices=("plain", "definition"), default="plain")
    parser.add_argument("--targets", nargs="+", default=[t for t in library.TARGETS if library.runs_target(t)])
    options = parser.parse_args()
    print(native.reason())
    if not native.available():
        return 1
    worst: Found = dict.fromkeys(options.targets, 0.0)
    wrong, began = [], time.perf_counter()
    for seed in range(options.seed, options.seed + options.programs):
        found = differences(seed, options.targets, options.against)
        for target, size in found.items():
            worst[target] = max(worst[target], size)
            if not size <= ALLOWED:
                wrong.append(seed)
                print(f"program {seed}, {target}: differs by {size:.1e}: {cases.random_case(seed).program}", flush=True)
        if seed % 50 == 49:
            jax.clear_caches()
            print(f"{seed - options.seed + 1} programs, {time.perf_counter() - began:.0f} s: {shown(worst)}", flush=True)
    print(f"{options.programs} programs from seed {options.seed} against {options.against}: largest difference {shown(worst)}")
    return 1 if wrong else 0


def shown(worst: Found) -> str:
    return ", ".join(f"{target} {size:.1e}" for target, size in worst.items())


def differences(seed: int, targets: list[str], against: str) -> Found:
    """For each target the largest difference, relative to the largest value; infinity where NaN or infinity differ."""
    case = cases.random_case(seed)
    thetas, packed = jnp.asarray(case.thetas), native.pack(case.X, case.y, case.weights)
    wanted = np.stack([(by_plain_path if against == "plain" else cases.outputs)(case.program, t, case.X) for t in case.thetas])
    each = np.stack([cases.sample_losses(case.kind, out, case.y) for out in wanted])
    each = each * (1 if case.weights is None else case.weights)
    top = np.sort(wanted, -1)
    tied = case.kind == "zero_one" and wanted.shape[-1] > 1 and (top[..., -1] - top[..., -2]).min() < 1e-4
    found = {}
    for target in targets:
        call = (case.program, case.shape)
        pairs = [(native.outputs(*call, thetas, packed, target=target), wanted)]
        if not tied:  # a tie to within rounding may fall either way
            pairs.append((native.per_sample(*call, case.kind, thetas, packed, target=target), each))
            pairs.append((native.losses(*call, case.kind, thetas, packed, target=target), each.mean(1)))
        found[target] = max(relative(np.asarray(got, np.float64), what) for got, what in pairs)
    return found


def by_plain_path(program: cases.Program, theta: np.ndarray, X: np.ndarray) -> np.ndarray:
    """The package's plain path, compiled, which takes images channels last."""
    out = np.asarray(_plain(program, theta, X.transpose(0, 2, 3, 1) if X.ndim == 4 else X), np.float64)
    return out.reshape(len(X), -1) if out.ndim < 4 else out.transpose(0, 3, 1, 2).reshape(len(X), -1)


_plain = jax.jit(plain.forward, static_argnums=0)


def relative(got: np.ndarray, wanted: np.ndarray) -> float:
    finite = np.isfinite(wanted)
    if not np.array_equal(got[~finite], wanted[~finite], equal_nan=True) or not np.isfinite(got[finite]).all():
        return float("inf")
    scale = max(np.abs(wanted[finite]).max(initial=0), 1e-3)
    return float(np.abs(got - wanted)[finite].max(initial=0) / scale)


if __name__ == "__main__":
    sys.exit(main())
