"""Sweeps over the workers of Dask: each runs ``clew sweep --shard`` and leaves files."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any


def _shard(clew: str, file: str, out: str, shard: int, of: int) -> int:
    """Runs one shard; what the command said is in the error."""
    words = [clew, "sweep", file, "--out", out, "--shard", f"{shard}/{of}", "--jobs", "1"]
    _run(words)
    return shard


def _run(words: list[str]) -> None:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(words)}: exit code {done.returncode}: {done.stderr.strip()}")


def dask_sweep(
    file: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    shards: int,
    clew: str = "clew",
    parquet: str | os.PathLike[str] | None = None,
    **options: Any,
) -> list[dict[str, Any]]:
    """Runs a sweep in ``shards`` on the workers of Dask, and returns its rows.

    ``out`` is a directory that all workers see, ``clew`` the command as they find it; ``options``
    go to ``dask.compute`` (``scheduler="processes"``, ``num_workers=4``); with a client of
    ``distributed`` its workers are used. What is there already is not replayed again: after an
    error call it again.
    """
    from dask.base import compute
    from dask.delayed import delayed

    file, out = os.fspath(file), os.fspath(out)
    task = delayed(_shard)
    tasks = [task(clew, file, out, number, shards) for number in range(1, shards + 1)]
    compute(*tasks, **options)  # type: ignore[no-untyped-call]
    words = [clew, "sweep", "--merge", out]
    if parquet is not None:
        words += ["--parquet", os.fspath(parquet)]
    _run(words)
    rows: list[dict[str, Any]] = json.loads((Path(out) / "sweep.json").read_text())
    return rows
