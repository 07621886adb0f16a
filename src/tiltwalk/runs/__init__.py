"""Run folders: settings, append-only draws, checkpoints, and runs that go on where they were stopped. See docs/run-folder.md.

    folder = tiltwalk.runs.open("runs/wine")
    folder.config, folder.status, folder.phases, folder.result
    folder.run            the draws, as `tiltwalk.sample` returns them
    folder.arrays("progress")
    folder.ensemble, folder.network, folder.data

Needs the extra `runs`.
"""

from tiltwalk.runs.folder import RunFolder, open

__all__ = ["RunFolder", "open"]
