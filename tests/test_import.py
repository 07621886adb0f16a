"""What `import tiltwalk` may bring with it: nothing that is heavy and only sometimes used, and no compilation."""

from __future__ import annotations

import subprocess
import sys

import pytest

import tiltwalk

OPTIONAL = (
    "matplotlib", "scipy", "sklearn", "torch", "flax", "equinox", "optax", "pandas", "pyarrow", "polars",
    "arviz", "arviz_base", "arviz_stats", "xarray", "IPython",
)  # fmt: skip


def fresh(code: str) -> str:
    """What a new interpreter prints."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_nothing_optional_is_imported() -> None:
    code = f"import sys, tiltwalk; print(sorted({{m.split('.')[0] for m in sys.modules}} & set({OPTIONAL!r})))"
    assert fresh(code) == "[]\n"


def test_the_list_of_optional_packages_is_looked_for_by_name() -> None:
    """What must be noticed: one of them imported on purpose."""
    code = f"import sys, pyarrow; print(sorted({{m.split('.')[0] for m in sys.modules}} & set({OPTIONAL!r})))"
    pytest.importorskip("pyarrow")
    assert "pyarrow" in fresh(code)


def test_import_starts_no_device() -> None:
    """Users choose platforms and precision after the import: no array may have been made by then."""
    code = (
        "import tiltwalk, jax\n"
        "from jax._src import xla_bridge\n"
        "print(xla_bridge.backends_are_initialized())\n"
        'jax.config.update("jax_enable_x64", True)\n'
        "print(tiltwalk.sample(tiltwalk.PathMeasure(tiltwalk.RandomWalk(1.0), tiltwalk.losses.bowl(), 1), 1.0, steps=1,"
        " progress=False).losses.dtype)"
    )
    assert fresh(code) == "False\nfloat64\n"


def test_every_public_name_is_there_and_says_what_it_is() -> None:
    assert sorted(tiltwalk.__all__) == sorted(set(tiltwalk.__all__))
    for name in tiltwalk.__all__:
        assert getattr(tiltwalk, name).__doc__, name
