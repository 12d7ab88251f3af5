"""What is compiled."""

import os
from typing import Any

__version__: str

class Trace:
    @property
    def path(self) -> os.PathLike[str]: ...
    @property
    def page_bytes(self) -> int: ...
    def __len__(self) -> int: ...
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> Any: ...

def read_trace(path: str | os.PathLike[str]) -> Trace: ...
def schemes() -> list[str]: ...
def compare_json(
    path: str,
    schemes: list[str],
    budget: str,
    policy_only: bool,
    ratio: float | None,
    flash: str | None,
    jobs: int,
) -> str: ...
