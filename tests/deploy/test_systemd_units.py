"""The units as files: in step with the daemon's settings, its exit status and its drain."""

import re
from pathlib import Path

import pytest

from daemon import systemd
from daemon.cli.run import EX_CONFIG
from daemon.settings import Settings

HERE = Path(__file__).parents[2] / "deploy" / "systemd"
SINGLE, TEMPLATE = "leveret.service", "leveret@.service"


def directives(name: str) -> dict[str, list[str]]:
    """Values by key; a key may come several times."""
    found: dict[str, list[str]] = {}
    for line in (HERE / name).read_text().splitlines():
        if "=" in line and not line.startswith("#"):
            key, _, value = line.partition("=")
            found.setdefault(key, []).append(value)
    return found


def test_the_template_is_the_unit_with_a_name() -> None:
    """Two units that drift apart: the one that fewer people run loses its sandbox."""
    single, template = directives(SINGLE), directives(TEMPLATE)
    differing = {key for key in single | template if single.get(key) != template.get(key)}
    assert differing == {"Description", "EnvironmentFile", "Environment"}
    assert set(single["Environment"]) <= set(template["Environment"])


@pytest.mark.parametrize("name", [SINGLE, TEMPLATE])
def test_the_unit_knows_the_daemon(name: str) -> None:
    """A variable, credential or exit status that the daemon does not know is ignored without a word."""
    unit = directives(name)
    variables = re.findall(r"(LEVERET_\w+)=", " ".join(unit["Environment"]))
    assert set(variables) <= {f"LEVERET_{field.upper()}" for field in Settings.model_fields}
    (credential,) = unit["LoadCredential"]
    assert credential.partition(":")[0].removeprefix("leveret_") in Settings.model_fields
    assert unit["RestartPreventExitStatus"] == [str(EX_CONFIG)]


@pytest.mark.parametrize("name", [SINGLE, TEMPLATE])
def test_the_times_fit_each_other(name: str) -> None:
    """A stop shorter than the drain kills a request; a start or watchdog shorter than its messages kills the daemon."""
    unit = directives(name)
    assert unit["Type"] == ["notify"]
    assert int(unit["TimeoutStopSec"][0]) >= Settings(_env_file=None).drain_seconds + 15
    assert int(unit["TimeoutStartSec"][0]) > systemd.EXTEND_SECONDS
    assert int(unit["WatchdogSec"][0]) >= 10 * systemd.TICK_SECONDS


@pytest.mark.parametrize("name", [SINGLE, TEMPLATE])
def test_the_unit_has_no_rights_to_lose(name: str) -> None:
    """No user, no capability, a read-only tree, and no network but what the operator allows."""
    unit = directives(name)
    expected = {
        "DynamicUser": ["yes"],
        "ProtectSystem": ["strict"],
        "NoNewPrivileges": ["yes"],
        "CapabilityBoundingSet": [""],
        "IPAddressDeny": ["any"],
        "IPAddressAllow": ["localhost"],
    }
    assert expected.items() <= unit.items()
    assert "ReadWritePaths" not in unit
