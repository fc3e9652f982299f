"""The settings as they were written: variables that no setting reads are most often typing errors."""

import difflib
from collections.abc import Iterable, Mapping
from pathlib import Path

from dotenv import dotenv_values
from pydantic import AliasChoices
from pydantic.fields import FieldInfo

from daemon.doctor.findings import Finding, ok, warn
from daemon.settings import Settings

_PREFIX = "LEVERET_"
_CLOSE = 0.6
"""How alike two names must be for one to be suggested (difflib's own default)."""


def variables_of(name: str, field: FieldInfo) -> list[str]:
    """The environment variables that set the field `name` of the settings, the preferred one first."""
    alias = field.validation_alias
    if not isinstance(alias, AliasChoices):
        return [f"{_PREFIX}{name.upper()}"]
    return [choice for choice in alias.choices if isinstance(choice, str) and choice.isupper()]


def known_variables() -> list[str]:
    """Every environment variable with Leveret's prefix that sets something."""
    fields = Settings.model_fields.items()
    names = [variable for name, field in fields for variable in variables_of(name, field)]
    return [name for name in names if name.startswith(_PREFIX)]


def check_variables(environment: Mapping[str, str], dotenv: Path) -> list[Finding]:
    """Look for variables with Leveret's prefix that no setting reads, in `environment` and in the file `dotenv`."""
    findings = [_unknown(name, "the environment") for name in _strangers(environment)]
    findings += [_unknown(name, f"{dotenv}") for name in _strangers(dotenv_values(dotenv))]
    return findings or [ok("settings", "all values are valid, no unknown LEVERET_ variable")]


def _strangers(names: Iterable[str]) -> list[str]:
    """Names are matched as the settings match them: upper and lower case are the same."""
    known = set(known_variables())
    return sorted(name for name in names if name.upper().startswith(_PREFIX) and name.upper() not in known)


def _unknown(name: str, where: str) -> Finding:
    known = [variable.removeprefix(_PREFIX) for variable in known_variables()]
    near = difflib.get_close_matches(name.upper().removeprefix(_PREFIX), known, n=1, cutoff=_CLOSE)
    advice = f"did you mean {_PREFIX}{near[0]}?" if near else "remove it; `leveret config` lists the settings"
    return warn("settings", f"{name} in {where} sets nothing", advice)
