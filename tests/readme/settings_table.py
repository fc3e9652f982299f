"""The settings table of the README, made from the settings themselves."""

from typing import Literal, get_args, get_origin

from pydantic import SecretStr
from pydantic.fields import FieldInfo

from daemon.doctor.environment import variables_of
from daemon.settings import Settings

ESCAPED_BAR = "\\|"
"""A bar inside a cell of a Markdown table."""


def settings_table() -> str:
    """One Markdown row for every setting: its variable, its default and what it does."""
    rows = [_row(name, field) for name, field in Settings.model_fields.items()]
    return "\n".join(["| variable | default | |", "|---|---|---|", *rows])


def _row(name: str, field: FieldInfo) -> str:
    variables = ", ".join(f"`{variable}`" for variable in variables_of(name, field))
    meaning = f"{field.description or ''}{_choices(field)}"
    cells = (variables, _default(field), meaning)
    return f"| {' | '.join(cell.replace('|', ESCAPED_BAR) for cell in cells)} |"


def _default(field: FieldInfo) -> str:
    """The default as it would be written into the environment."""
    value = field.default
    if field.default_factory is not None or value is None:
        return "none"
    if isinstance(value, SecretStr):
        value = value.get_secret_value()
    shown = str(value).lower() if isinstance(value, bool) else f"{value:g}" if isinstance(value, float) else str(value)
    return f"`{shown}`"


def _choices(field: FieldInfo) -> str:
    literals = [part for part in (field.annotation, *get_args(field.annotation)) if get_origin(part) is Literal]
    names = [f"`{choice}`" for literal in literals for choice in get_args(literal)]
    return f" One of {', '.join(names)}." if names else ""
