"""What `networks` found, as tables to read. `times ours`: against our loss object, many models at a time, same network."""

from __future__ import annotations

from typing import Any

MOST_BYTES = 1.5e9
"""What 32 LeNets on 2,048 images may take; more images may take 1.2 times that and their own size."""


def show(report: dict[str, Any]) -> None:
    """Prints a report, of this run or read from JSON."""
    settings = report["settings"]
    by_kind: dict[str, list[dict[str, Any]]] = {}
    for row in report["rows"]:
        by_kind.setdefault(row["kind"], []).append(row)
    print("; ".join(f"{name} {value}" for name, value in report["machine"].items()))
    torch = f"; PyTorch's {report['torch_peak_gflops']:.0f}" if report["torch_peak_gflops"] else ""
    side = f"{settings['side']} x {settings['side']}"
    peak = f"{report['peak_gflops']:.0f} GFLOP/s, the best seen" if report["peak_gflops"] else "not measured"
    print(f"matrix product, float32, {side}: {peak}{torch}")
    if report["kernel"]:
        print(f"ours: {report['kernel']}")
    if "loss" in by_kind:
        print(f"\nloss over {settings['samples']} images")
        print(f"{'':60s}{'models':>7s}{'ms a model':>12s}{'GFLOP/s':>9s}{'share':>7s}{'times ours':>12s}")
        for row in by_kind["loss"]:
            print(_loss(row))
    if "gradient" in by_kind:
        print("\nvalue and gradient")
        print(f"{'':60s}{'models':>7s}{'ms a model':>12s}{'times the value':>17s}")
        for row in by_kind["gradient"]:
            ratio = _or_nothing(row, "times_value", "17.2f")
            print(f"{_name(row)}{row['models']:7d}{row['seconds_per_model'] * 1e3:12.3f}{ratio}")
    if "updates" in by_kind:
        print(f"\nupdates by `sample`, one chain of length {settings['length']}")
        print(f"{'':60s}{'a second':>19s}{'GFLOP/s':>9s}{'share':>7s}")
        for row in by_kind["updates"]:
            print(f"{_name(row)}{1 / row['seconds_per_model']:19.1f}{row['gflops']:9.1f}{_or_nothing(row, 'share', '7.0%')}")
    if "memory" in by_kind:
        print("\nthe most memory of a process until it had read the images, made the loss, and evaluated it, MB")
        print(f"{'':60s}{'models':>7s}{'images':>12s}{'read':>9s}{'made':>7s}{'evaluated':>12s}{'allowed':>9s}")
        for row in by_kind["memory"]:
            read, made, most, allowed = (row[k] / 1e6 for k in ("bytes_before", "bytes_made", "bytes", "allowed_bytes"))
            print(f"{_name(row)}{row['models']:7d}{row['samples']:12d}{read:9.0f}{made:7.0f}{most:12.0f}{allowed:9.0f}")
    if report["skipped"]:
        print()
    for name, why in report["skipped"].items():
        print(f"skipped: {name}: {why}")


def _loss(row: dict[str, Any]) -> str:
    ratio = _or_nothing(row, "times_ours", "12.2f")
    wrong = "" if row.get("same_loss", True) else "  ANOTHER LOSS"
    which = f"  ({row['which']})" if row.get("which") else ""
    line = f"{_name(row)}{row['models']:7d}{row['seconds_per_model'] * 1e3:12.3f}{row['gflops']:9.1f}"
    return line + _or_nothing(row, "share", "7.0%") + ratio + wrong + which


def _name(row: dict[str, Any]) -> str:
    forced = ", forced" if row["part"].endswith("forced") else ""
    alone = ", alone" if row["kind"] == "loss" and row["models"] == 1 else ""
    return f"{row['network']:15s}{row['how'] + forced + alone:45s}"


def _or_nothing(row: dict[str, Any], name: str, form: str) -> str:
    return format(row[name], form) if name in row else ""
