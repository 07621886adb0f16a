"""`tiltwalk info`: what this machine has, and what tiltwalk makes of it; `tiltwalk info RUN`: where a run stands."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import typing
from pathlib import Path
from typing import Any

import click

EXTRAS = {
    "plots": ("matplotlib",),
    "arviz": ("arviz-base", "arviz-stats"),
    "gradients": ("optax",),
    "flax": ("flax",),
    "equinox": ("equinox",),
    "torch": ("torch",),
    "sklearn": ("scikit-learn",),
    "tables": ("pandas", "pyarrow"),
    "runs": ("pydantic", "google-crc32c"),
    "tensorboard": ("tensorboardX",),
}
"""Packages of each optional extra, as in pyproject.toml: a test compares them."""


@click.command("info")
@click.argument("folder", metavar="[RUN]", required=False, type=click.Path(path_type=Path))
@click.option("--watch", is_flag=True, help="Of a run: again every few seconds, until it ends.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON in place of text.")
def command(folder: Path | None, watch: bool, as_json: bool) -> None:
    """A run: what it is, where it stands, how to go on. Without one, this machine: versions, devices, cores, memory,
    optional extras, and whether the compiled kernel is in use.
    """
    if folder is None and watch:
        raise click.UsageError("--watch needs a RUN to watch.", click.get_current_context())
    if folder is not None:
        from tiltwalk.cli import info_run

        info_run.show(folder, watch, as_json)
        return
    found = gathered()
    click.echo(json.dumps(found, indent=1, ensure_ascii=False) if as_json else text(found))


def gathered() -> dict[str, Any]:
    """Everything, as JSON can hold it."""
    import jax

    from tiltwalk import native
    from tiltwalk._version import __version__
    from tiltwalk.experiments import cores
    from tiltwalk.networks.layers import ACTIVATIONS, Layer

    layers = [kind.__name__ for kind in typing.get_args(Layer) if kind.__name__ != "Activation"] + list(ACTIVATIONS)
    return {
        "tiltwalk": __version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "packages": {name: installed(name) for name in ("jax", "jaxlib", "numpy", "scipy")},
        "devices": [f"{device.platform}:{device.id} {device.device_kind}" for device in jax.devices()],
        "float64": jax.numpy.zeros(0).dtype == "float64",
        "cores": cores(),
        "memory_bytes": memory(),
        "extras": {extra: {name: installed(name) for name in names} for extra, names in EXTRAS.items()},
        "native": {"available": native.available(), "target": native.target(), "reason": native.reason()},
        "layers": layers,
    }


def installed(package: str) -> str | None:
    """The version of a package, found without importing it; None where it is missing."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def memory() -> int | None:
    """The bytes of memory of this machine, where the system says so."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None


def text(found: dict[str, Any]) -> str:
    packages = ", ".join(f"{name} {version or 'missing'}" for name, version in found["packages"].items())
    size = "unknown" if found["memory_bytes"] is None else f"{found['memory_bytes'] / 2**30:.1f} GiB"
    lines = [
        f"tiltwalk   {found['tiltwalk']}",
        f"python     {found['python']} on {found['system']}",
        f"packages   {packages}",
        f"devices    {', '.join(found['devices'])}; numbers are {'float64' if found['float64'] else 'float32'}",
        f"cores      {found['cores']}",
        f"memory     {size}",
        f"kernel     {'compiled' if found['native']['available'] else 'plain JAX'}: {found['native']['reason']}",
        f"layers     {', '.join(found['layers'])}: networks of these take the kernel where there is one, and so do",
        "           modules of Flax, Equinox and Torch that are a row of them; of others, print(network) says what they have",
        "extras",
    ]
    width = max(len(extra) for extra in found["extras"]) + 1
    for extra, packages_of in found["extras"].items():
        missing = [name for name, version in packages_of.items() if version is None]
        there = ", ".join(f"{name} {version}" for name, version in packages_of.items() if version is not None)
        lines.append(f"  {extra:<{width}}" + (f'missing: pip install "tiltwalk[{extra}]"' if missing else there))
    return "\n".join(lines)
