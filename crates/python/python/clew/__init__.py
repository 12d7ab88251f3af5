"""Traces, replays and sweeps of Clew, compressed swap in user space.

A trace is a stream of Arrow record batches: ``polars.from_arrow(clew.read_trace(path))``, or any
other library that knows the Arrow PyCapsule interface. Replays give what ``clew replay --format
json`` gives.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from typing import Any, Union

from ._clew import Trace, __version__, compare_json, read_trace, schemes
from ._sweep import dask_sweep

__all__ = [
    "Trace",
    "__version__",
    "compare",
    "dask_sweep",
    "flat",
    "read_trace",
    "replay",
    "schemes",
]

Path = Union[str, "os.PathLike[str]"]


def replay(
    trace: Trace | Path,
    scheme: str = "zram",
    *,
    budget: str = "60%",
    policy_only: bool = False,
    ratio: float | None = None,
    flash: str | None = None,
) -> dict[str, Any]:
    """Replays a trace under one scheme, a preset's name or a TOML file; time is modelled.

    ``budget`` is a size ("256MiB") or a share of what all pages take ("60%"). ``policy_only``
    replays without contents, where the trace has none; with ``ratio`` each page is stored at that
    ratio. ``flash`` is a size. Raises ``ValueError`` where one of them makes no sense.
    """
    (arm,) = compare(
        trace, [scheme], budget=budget, policy_only=policy_only, ratio=ratio, flash=flash, jobs=1
    )
    return arm


def compare(
    trace: Trace | Path,
    schemes: Iterable[str],
    *,
    budget: str = "60%",
    policy_only: bool = False,
    ratio: float | None = None,
    flash: str | None = None,
    jobs: int | None = None,
) -> list[dict[str, Any]]:
    """Replays a trace under each scheme in equal memory, ``jobs`` at once (default: the CPUs).

    ``polars.DataFrame([clew.flat(arm) for arm in clew.compare(...)])`` is a table of it.
    """
    path = trace.path if isinstance(trace, Trace) else trace
    jobs = jobs or os.cpu_count() or 1
    text = compare_json(os.fspath(path), list(schemes), budget, policy_only, ratio, flash, jobs)
    arms: list[dict[str, Any]] = json.loads(text)
    return arms


def flat(arm: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """One row of a table: nested names are joined by dots, lists and what is missing left out."""
    row: dict[str, Any] = {}
    for name, value in arm.items():
        if isinstance(value, Mapping):
            row.update(flat(value, f"{before}{name}."))
        elif value is not None and not isinstance(value, list):
            row[f"{before}{name}"] = value
    return row
