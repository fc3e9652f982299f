"""`leveret doctor` without a broker: each check sees what is wrong and says what to do."""

import json
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file
from typer.testing import CliRunner

from daemon.cli.doctor import app
from daemon.doctor.environment import check_variables, known_variables
from daemon.doctor.findings import Verdict
from daemon.doctor.machine import check_clock, check_memory, check_processor, check_threads, clock_is_synchronised
from daemon.doctor.memory import Memory, read_memory
from daemon.doctor.model import Weights, check_model, read_weights
from daemon.engine.quantize import KINDS
from daemon.settings import Settings, load_settings
from tests.support.scripted_model import write_scripted_model

MIB = 1 << 20
NUMBERS = np.ones((2, 3), np.float32)
NOW = datetime(2026, 12, 2, 12, 0, tzinfo=UTC)


@pytest.fixture
def settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Settings:
    """The settings of a daemon with a small scripted model, far from the `.env` of whoever runs the tests."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LEVERET_MODEL", str(write_scripted_model(tmp_path / "model", ["Hi"])))
    return load_settings()


def _machine(root: Path, *, cgroup: str, files: dict[str, str]) -> Path:
    """A root directory with 1000 MiB of available memory and these cgroup files."""
    for name, text in {
        "proc/meminfo": f"MemAvailable: {1000 * 1024} kB\n",
        "proc/self/cgroup": cgroup,
        **files,
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


# -- settings ---------------------------------------------------------------------------------------------------------


def test_a_misspelt_variable_is_named_with_the_right_one(tmp_path: Path) -> None:
    """Guards against a typing error in the environment or in `.env` that silently sets nothing."""
    dotenv = tmp_path / ".env"
    dotenv.write_text("LEVERET_MODLE=x\nOTHER=1\n")
    in_environment, in_file = check_variables({"LEVERET_THREDS": "2", "PATH": "/bin"}, dotenv)
    assert (in_environment.verdict, in_environment.advice) == (Verdict.WARN, "did you mean LEVERET_THREADS?")
    assert "LEVERET_MODLE" in in_file.seen
    assert in_file.advice == "did you mean LEVERET_MODEL?"


def test_a_strange_variable_gets_no_far_fetched_suggestion(tmp_path: Path) -> None:
    """Guards against advice that leads astray."""
    (finding,) = check_variables({"LEVERET_ZZZZ": ""}, tmp_path / ".env")
    assert "mean" not in finding.advice


def test_every_known_variable_is_known(tmp_path: Path) -> None:
    """Guards against a warning about a variable that does set something, in whatever case it is written."""
    assert "LEVERET_DECLARE" in known_variables()
    names = [*known_variables(), "leveret_queue"]
    (finding,) = check_variables(dict.fromkeys(names, ""), tmp_path / ".env")
    assert finding.verdict is Verdict.OK


# -- memory -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cgroup", "files", "expected"),
    [
        ("0::/\n", {}, Memory(1000 * MIB, None)),
        (
            "0::/app\n",
            {"sys/fs/cgroup/app/memory.max": "max\n", "sys/fs/cgroup/app/memory.current": "5\n"},
            Memory(1000 * MIB, None),
        ),
        (
            "0::/app/unit\n",
            {
                "sys/fs/cgroup/app/memory.max": f"{500 * MIB}\n",
                "sys/fs/cgroup/app/memory.current": f"{200 * MIB}\n",
                "sys/fs/cgroup/app/unit/memory.max": "max\n",
                "sys/fs/cgroup/app/unit/memory.current": "7\n",
            },
            Memory(300 * MIB, 500 * MIB),
        ),
        (
            "4:memory:/job\n0::/\n",
            {
                "sys/fs/cgroup/memory/job/memory.limit_in_bytes": f"{256 * MIB}\n",
                "sys/fs/cgroup/memory/job/memory.usage_in_bytes": f"{300 * MIB}\n",
            },
            Memory(0, 256 * MIB),
        ),
        (
            "4:memory:/job\n",
            {
                "sys/fs/cgroup/memory/job/memory.limit_in_bytes": "9223372036854771712\n",
                "sys/fs/cgroup/memory/job/memory.usage_in_bytes": "1\n",
            },
            Memory(1000 * MIB, None),
        ),
    ],
    ids=["no group", "no limit", "limit of a parent", "version 1, full", "version 1, no limit"],
)
def test_memory_is_what_machine_and_group_leave(
    tmp_path: Path, cgroup: str, files: dict[str, str], expected: Memory
) -> None:
    """Guards against room that the machine has and the container does not."""
    assert read_memory(_machine(tmp_path, cgroup=cgroup, files=files)) == expected


def test_memory_verdicts(tmp_path: Path) -> None:
    """Guards against a daemon that is killed at its start although the doctor said ok; the sizes are in the line."""
    root = _machine(tmp_path, cgroup="0::/\n", files={})
    sizes = ((10_000, "int8"), (5 * 10**8, "int8"), (5 * 10**8, "float32"))
    small, tight, large = (check_memory(count, kind, 100 * MIB, root) for count, kind in sizes)
    assert [finding.verdict for finding in (small, tight, large)] == [Verdict.OK, Verdict.WARN, Verdict.FAIL]
    assert "1000 MiB are free" in large.seen


# -- machine ----------------------------------------------------------------------------------------------------------


def test_processor_without_avx2(tmp_path: Path) -> None:
    """Guards against slow kernels that nobody was told about."""
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text("processor : 0\nflags\t\t: fpu sse2 fma\n")
    assert "no avx2" in check_processor(cpuinfo, "x86_64").seen
    cpuinfo.write_text("flags\t\t: fma avx2 avx512f\n")
    assert check_processor(cpuinfo, "x86_64").verdict is Verdict.OK
    assert check_processor(cpuinfo, "riscv64").verdict is Verdict.WARN


def test_more_threads_than_the_quota() -> None:
    """Guards against threads that wait for each other, which is tens of times slower."""
    assert check_threads(None, 2).verdict is Verdict.OK
    assert check_threads(2, 2).verdict is Verdict.OK
    assert check_threads(8, 2).advice == "set it to 2 or unset it"


def test_clock_verdicts() -> None:
    """Guards against budgets that are spent before the request arrives."""
    assert check_clock(NOW, synchronised=True).verdict is Verdict.OK
    assert check_clock(NOW, synchronised=False).verdict is Verdict.WARN
    assert check_clock(NOW, synchronised=None).verdict is Verdict.WARN
    assert check_clock(datetime(1970, 1, 1, tzinfo=UTC), synchronised=True).verdict is Verdict.FAIL


def test_the_kernel_can_be_asked_about_the_clock() -> None:
    """Guards against a wrong layout of the kernel's structure: asking must not fail on Linux."""
    assert clock_is_synchronised() in {True, False}


# -- model ------------------------------------------------------------------------------------------------------------


def test_a_whole_model(settings: Settings) -> None:
    """Guards against fault found where there is none."""
    findings, load = check_model(settings)
    assert [finding.check for finding in findings] == ["model", "tokenizer", "weights"]
    assert {finding.verdict for finding in findings} == {Verdict.OK}
    assert load is not None
    assert (load.parameters > 0, load.kind) == (True, "int8")


def test_weights_that_the_model_does_not_take(monkeypatch: pytest.MonkeyPatch, settings: Settings) -> None:
    """Guards against a slow or impossible kind of weights that shows only when the daemon runs."""
    config = Path(settings.model) / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"model_type": "gpt2"}))
    findings, load = check_model(settings)
    assert (findings[-1].verdict, load and load.kind) == (Verdict.WARN, "float32")
    for kind in KINDS:
        monkeypatch.setenv("LEVERET_WEIGHTS", kind)
        findings, _ = check_model(load_settings())
        assert (findings[-1].verdict, findings[-1].advice) == (Verdict.FAIL, "set LEVERET_WEIGHTS=float32 or unset it")


def test_a_weight_file_that_is_cut_short(settings: Settings) -> None:
    """Guards against an interrupted download that shows only when the model loads."""
    path = Path(settings.model) / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    (finding,), load = check_model(settings)
    assert (finding.verdict, load) == (Verdict.FAIL, None)
    assert "cut short" in finding.seen
    assert "leveret fetch" in finding.advice


@pytest.mark.parametrize("content", [b"", b"1234567", b"\xff" * 100, b"\x02\0\0\0\0\0\0\0[]"])
def test_a_weight_file_that_is_none(tmp_path: Path, content: bytes) -> None:
    """Guards against a traceback over garbage: an error page, an empty file."""
    (tmp_path / "model.safetensors").write_bytes(content)
    with pytest.raises(ValueError, match=r"model\.safetensors has no safetensors header"):
        read_weights(tmp_path)


def test_a_missing_part_of_the_weights(tmp_path: Path) -> None:
    """Guards against a model in several files of which one did not arrive."""
    parts = {"a": "model-1.safetensors", "b": "model-2.safetensors"}
    save_file({"a": NUMBERS}, tmp_path / parts["a"])
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": parts}))
    with pytest.raises(ValueError, match=r"model-2\.safetensors is missing"):
        read_weights(tmp_path)
    save_file({"b": NUMBERS}, tmp_path / parts["b"])
    assert read_weights(tmp_path).parameters == 2 * NUMBERS.size


def test_quantised_weights_are_no_second_model(tmp_path: Path) -> None:
    """Guards against weights counted twice, in the checkpoint and as int8; alone, as in an image, they count."""
    save_file({"a": NUMBERS}, tmp_path / "model.safetensors")
    save_file({"a": NUMBERS.astype(np.int8)}, tmp_path / "leveret-int8.safetensors")
    assert read_weights(tmp_path) == Weights(1, NUMBERS.size)
    (tmp_path / "model.safetensors").unlink()
    assert read_weights(tmp_path) == Weights(1, NUMBERS.size)


def test_int4_weights_alone_count_as_what_they_hold(tmp_path: Path) -> None:
    """Guards against bytes taken for parameters: 320 of them hold 512 weights and their levels."""
    save_file({"a": np.zeros((2, 3, 320), np.uint8), "b": NUMBERS}, tmp_path / "leveret-int4.safetensors")
    assert read_weights(tmp_path) == Weights(1, 2 * 3 * 512 + NUMBERS.size)


def test_a_model_that_is_not_there(monkeypatch: pytest.MonkeyPatch, settings: Settings) -> None:
    """Guards against advice that fits no case: fetch it, or nothing where the daemon does."""
    monkeypatch.setenv("LEVERET_MODEL", "org/absent")
    (finding,), _ = check_model(load_settings())
    assert "leveret fetch org/absent" in finding.advice
    monkeypatch.setenv("LEVERET_FETCH", "true")
    (finding,), _ = check_model(load_settings())
    assert finding.verdict is Verdict.OK


# -- the command ------------------------------------------------------------------------------------------------------


def test_bad_settings_are_a_finding(monkeypatch: pytest.MonkeyPatch, settings: Settings) -> None:
    """Guards against a doctor that refuses to look at a patient who is ill."""
    monkeypatch.setenv("LEVERET_THREADS", "many")
    result = CliRunner().invoke(app, [])
    assert result.exit_code == 1
    assert any(line.startswith("fail  settings") and "LEVERET_THREADS" in line for line in result.output.splitlines())


def test_a_broker_that_is_not_there(monkeypatch: pytest.MonkeyPatch, settings: Settings) -> None:
    """Guards against a verdict that scripts cannot read, and a fault that hides what comes after it."""
    monkeypatch.setenv("LEVERET_AMQP_URL", "amqp://guest:secret@127.0.0.1:1/")
    result = CliRunner().invoke(app, ["--json"])
    verdicts = {finding["check"]: finding["verdict"] for finding in json.loads(result.stdout)}
    assert result.exit_code == 1
    assert (verdicts["broker"], verdicts["model"]) == ("fail", "ok")
    assert "secret" not in result.output
