"""The image's recipe, as far as it can be judged without building it; `make image-test` builds and runs it."""

import re
import shlex
import tomllib
from importlib import metadata
from pathlib import Path

from daemon import __version__
from daemon.settings import Settings

ROOT = Path(__file__).parents[2]
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")


def instructions() -> list[tuple[str, str]]:
    """Each instruction with its arguments; comments left out, continued lines joined."""
    lines = [line for line in DOCKERFILE.splitlines() if not line.startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ").splitlines()
    return [(word, rest.strip()) for word, _, rest in (line.partition(" ") for line in joined) if word]


def stage(name: str) -> list[tuple[str, str]]:
    """The instructions of one stage."""
    found: list[tuple[str, str]] = []
    current = ""
    for word, rest in instructions():
        if word == "FROM":
            current = rest.rpartition(" ")[2]
        elif current == name:
            found.append((word, rest))
    assert found, f"no stage {name!r}"
    return found


def arguments(stage_name: str, word: str) -> list[str]:
    """What a stage gives to one kind of instruction."""
    return [rest for found, rest in stage(stage_name) if found == word]


def pins(path: Path) -> dict[str, str]:
    """Package to version, of a lock."""
    return dict(re.findall(r"^([a-z0-9._-]+)==([^\s;\\]+)", path.read_text(encoding="utf-8"), re.MULTILINE))


def plain(requirement: str) -> str:
    """The distribution that a requirement is about."""
    return normal(re.split(r"[><=~!;\[ ]", requirement)[0])


def needs(distribution: str) -> list[str]:
    """What an installed distribution needs here, extras of its own left out."""
    found = metadata.requires(distribution) or []
    return [plain(line) for line in found if "extra ==" not in line]


def normal(name: str) -> str:
    """A distribution's name as locks write it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def test_the_image_gets_what_was_tested_and_nothing_else() -> None:
    """A second lock could drift: other versions, a missing library, or the development tools as well."""
    tested, shipped = pins(ROOT / "requirements.lock"), pins(ROOT / "deploy" / "lock" / "runtime.lock")
    assert shipped.items() <= tested.items()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    names = {plain(need) for need in project["dependencies"]}
    assert names - {"torch"} <= {normal(name) for name in shipped}
    assert not {"pytest", "mypy", "ruff", "hypothesis"} & set(shipped)


def test_the_extra_for_spans_is_locked_and_asked_for() -> None:
    """`EXTRA=otel` installs what the tests ran with, as complete as pip would, and nothing where it is not set."""
    tested, runtime, extra = (
        pins(ROOT / name) for name in ("requirements.lock", "deploy/lock/runtime.lock", "deploy/lock/otel.lock")
    )
    assert extra.items() <= tested.items()
    wanted = {need for name in extra for need in needs(name)}
    assert wanted <= {normal(name) for name in extra | runtime}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert {plain(need) for need in project["optional-dependencies"]["otel"]} <= set(extra) - set(runtime)
    assert "EXTRA=" in arguments("deps", "ARG")


def test_defaults_are_the_daemons() -> None:
    """The baked model is the one that the settings name, and the label tells the version that it is."""
    for name in ("model", "runtime"):
        assert f"MODEL_ID={Settings.model_fields['model'].default}" in arguments(name, "ARG")
    assert f"VERSION={__version__}" in arguments("runtime", "ARG")


def test_it_runs_unprivileged_and_in_exec_form() -> None:
    """A shell in between would swallow SIGTERM, and with it the drain."""
    assert arguments("runtime", "ENTRYPOINT") == ['["leveret"]']
    assert arguments("runtime", "CMD") == ['["run"]']
    assert arguments("runtime", "USER") == ["10001:10001"]


def test_the_health_check_asks_livez_without_curl() -> None:
    """It must work on a slim image; and a broker that is away is no reason to restart a container."""
    (check,) = arguments("runtime", "HEALTHCHECK")
    assert "--start-period=60s" in check
    assert "/livez" in check
    assert check.partition(" CMD ")[2].startswith('["python3"')


def test_the_last_stage_installs_nothing() -> None:
    """Compilers and package managers belong to the stages that are thrown away."""
    assert not [rest for rest in arguments("runtime", "RUN") if re.search(r"apt|pip|curl|wget", rest)]


def test_what_is_copied_is_let_through() -> None:
    """A file that .dockerignore keeps out breaks the build, on the machine of whoever builds it next."""
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert "*" in lines
    let_through = [line[1:].rstrip("/") for line in lines if line.startswith("!")]
    copies = [shlex.split(rest)[:-1] for word, rest in instructions() if word == "COPY" and "--from" not in rest]
    sources = [source.rstrip("/") for words in copies for source in words]
    assert len(sources) >= 10
    for source in sources:
        assert (ROOT / source).exists(), source
        assert any(source == place or source.startswith(f"{place}/") for place in let_through), source
