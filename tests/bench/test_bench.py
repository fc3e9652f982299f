"""`leveret bench`: that every figure is there and plausible; how fast anything is, no test says."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from daemon.bench.figures import Figures, report, table
from daemon.bench.measure import memory_bytes
from daemon.bench.plot import draw
from daemon.cli.bench import app
from tests.support.scripted_model import write_scripted_model

FAST = Figures("int8", 2, 128, 1000, 2.0, 100.0, 90.0, 30.0, 27.0, 8.0, 0.5, 1 << 30, 3 << 29)
SLOW = Figures("transformers", 2, 128, 1000, 5.0, 50.0, 45.0, 3.0, 2.0, 16.0, None, 2 << 30, 2 << 30)


def test_every_figure_of_every_kind_is_measured(tmp_path: Path) -> None:
    """Each kind runs in a process of its own and hands its figures back; plain transformers is compared with."""
    model = write_scripted_model(tmp_path / "scripted", ["a", "b"])
    done = CliRunner().invoke(app, ["--model", str(model), "--baseline", "--json", "--plot", str(tmp_path / "p.png")])
    assert done.exit_code == 0, done.output
    result = json.loads(done.stdout)
    assert [one["weights"] for one in result["figures"]] == ["int8", "transformers"]
    for one in result["figures"]:
        measured = {name: value for name, value in one.items() if name not in {"weights", "first_token_cached_seconds"}}
        assert all(value > 0 for value in measured.values())
        assert one["peak_bytes"] >= one["steady_bytes"] * 0.99
    assert result["figures"][0]["first_token_cached_seconds"] < result["figures"][0]["first_token_cold_seconds"]
    assert set(result["ratios_to_baseline"]) == {"int8"}
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")


def test_ratios_say_how_many_times_better() -> None:
    """More tokens a second and less memory are both ratios above 1."""
    ratios = report("m", [FAST, SLOW])["ratios_to_baseline"]["int8"]
    assert ratios == {
        "prefill_short": 2.0,
        "prefill_long": 2.0,
        "decode": 10.0,
        "decode_long": 13.5,
        "steady_bytes": 2.0,
    }
    assert report("m", [FAST])["ratios_to_baseline"] is None


def test_the_table_has_a_column_for_each_kind() -> None:
    """What people read; a figure that is not there is named, not 0."""
    lines = table([FAST, SLOW])
    assert lines[0].split() == ["int8", "transformers"]
    assert next(line for line in lines if line.startswith("decode, short")).split()[-4:] == [
        "30.0",
        "tokens/s",
        "3.0",
        "tokens/s",
    ]
    assert next(line for line in lines if line.startswith("first token, cached")).endswith("none")


def test_a_kind_that_cannot_be_measured_ends_the_bench(tmp_path: Path) -> None:
    """Half a comparison must not look like a whole one."""
    model = write_scripted_model(tmp_path / "scripted", ["a"])
    done = CliRunner().invoke(app, ["--model", str(model), "--weights", "int3"])
    assert done.exit_code != 0
    assert "int3 weights could not be measured" in str(done.exception)


def test_memory_is_read_in_bytes(tmp_path: Path) -> None:
    """The system counts in KiB."""
    status = tmp_path / "status"
    status.write_text("Name:\tx\nVmHWM:\t  2048 kB\nVmRSS:\t 1024 kB\n", "utf-8")
    assert memory_bytes("VmRSS", status) == 1024 * 1024
    assert memory_bytes("VmHWM", status) == 2048 * 1024
    assert memory_bytes("VmRSS", tmp_path / "missing") == 0


def test_without_matplotlib_the_plot_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is an extra: drawing is for the one who measures, not for every daemon."""
    monkeypatch.setitem(__import__("sys").modules, "matplotlib.figure", None)
    with pytest.raises(Exception, match=r"pip install 'leveret\[plot\]'"):
        draw("m", [FAST], tmp_path / "p.png")
