"""The module beside the command: both must say the same."""

import io
import json
import subprocess
from pathlib import Path

import clew
import polars as pl
import pytest


def test_records_are_those_of_the_export(command: str, trace_file: Path) -> None:
    trace = clew.read_trace(trace_file)
    words = [command, "trace", "export", "--csv", str(trace_file)]
    text = subprocess.run(words, check=True, capture_output=True).stdout
    read = pl.DataFrame(trace)
    wanted = pl.read_csv(io.BytesIO(text), schema=read.schema)
    assert len(read) == len(trace) > 1 << 16
    # More than a batch, and each stream begins at the first record.
    assert read.equals(pl.DataFrame(trace))
    empty = pl.col(pl.String).fill_null("")
    assert read.with_columns(empty).equals(wanted.with_columns(empty))


def test_a_replay_is_that_of_the_command(command: str, trace_file: Path) -> None:
    words = [command, "replay", str(trace_file), "--scheme", "ariadne", "--policy-only"]
    words += ["--budget", "60%", "--format", "json"]
    said = json.loads(subprocess.run(words, check=True, capture_output=True).stdout)
    arm = clew.replay(trace_file, "ariadne", policy_only=True)
    assert arm == said["points"][0]["arms"][0]


def test_schemes_are_compared_in_their_order(trace_file: Path) -> None:
    trace = clew.read_trace(trace_file)
    names = ["clew", "zram"]
    arms = clew.compare(trace, names, budget="50%", policy_only=True, jobs=2)
    assert [arm["name"] for arm in arms] == names
    assert set(names) <= set(clew.schemes())
    rows = pl.DataFrame([clew.flat(arm) for arm in arms])
    assert rows["name"].to_list() == names and "relaunch_ms.p50" in rows.columns


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"scheme": "none-such"}, "none-such"),
        ({"budget": "much"}, "budget"),
        ({"budget": "1KiB"}, "8"),
        ({"ratio": 2.0}, "policy_only"),
        ({"ratio": 0.5, "policy_only": True}, "0.5"),
        ({"flash": "some"}, "flash"),
    ],
)
def test_what_makes_no_sense_is_named(
    trace_file: Path, options: "dict[str, object]", word: str
) -> None:
    with pytest.raises(ValueError, match=word):
        clew.replay(trace_file, **options)  # type: ignore[arg-type]


def test_what_is_no_trace_is_an_os_error(tmp_path: Path) -> None:
    for text in [b"", b"no trace at all" * 100]:
        (tmp_path / "x").write_bytes(text)
        with pytest.raises(OSError, match="x: "):
            clew.read_trace(tmp_path / "x")
    with pytest.raises(OSError, match="missing"):
        clew.read_trace(tmp_path / "missing")


def test_damaged_records_are_an_error_and_never_others(tmp_path: Path) -> None:
    whole = (Path(__file__).parents[3] / "tests/corpus/trace/policy-only").read_bytes()
    file = tmp_path / "damaged"
    file.write_bytes(whole)
    wanted = pl.DataFrame(clew.read_trace(file))
    refused = 0
    for at in range(0, len(whole), 8):
        damaged = bytearray(whole)
        damaged[at] ^= 0xFF
        file.write_bytes(damaged)
        try:
            trace = clew.read_trace(file)
        except OSError:
            continue
        try:
            assert pl.DataFrame(trace).equals(wanted), at
        except pl.exceptions.PolarsError as error:
            assert str(error), at
            refused += 1
    assert refused > 0, "records that are damaged were read"


def test_a_sweep_over_dask_goes_on_where_it_was(
    command: str, trace_file: Path, tmp_path: Path
) -> None:
    sweep = tmp_path / "s.toml"
    sweep.write_text(
        f'traces = ["{trace_file}"]\nschemes = ["zram"]\nbudgets = ["60%", "80%"]\n'
        'pages = "weightless"\n'
    )
    run = {"shards": 3, "clew": command, "scheduler": "processes"}
    rows = clew.dask_sweep(sweep, tmp_path / "out", **run)
    assert [row["budget"] for row in rows] == ["60%", "80%"]
    result = tmp_path / "out" / "results" / "2-of-3.json"
    result.unlink()
    assert clew.dask_sweep(sweep, tmp_path / "out", **run) == rows
    sweep.write_text("traces = []")
    with pytest.raises(RuntimeError, match="traces"):
        clew.dask_sweep(sweep, tmp_path / "out", **run)


def test_the_notebook_runs() -> None:
    notebook = Path(__file__).parents[1] / "examples" / "trace.ipynb"
    cells = json.loads(notebook.read_text())["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    assert len(code) > 3
    names: dict[str, object] = {"__name__": "__main__"}
    for number, source in enumerate(code):
        exec(compile(source, f"cell {number}", "exec"), names)
