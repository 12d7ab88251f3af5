"""A small trace, made by the command that CLEW names."""

import os
import subprocess
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def command() -> str:
    """The command."""
    return os.environ.get("CLEW", "clew")


@pytest.fixture(scope="session")
def trace_file(command: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trace of three apps."""
    path = tmp_path_factory.mktemp("trace") / "day.trace"
    words = ["gen", "mobile-2025", "--scale", "0.03", "--apps", "3", "--events", "80000"]
    subprocess.run([command, *words, "-o", path], check=True, capture_output=True)
    return path
