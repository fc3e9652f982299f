"""What llguidance would accept in a JSON Schema and yet enforce only in part, or wrongly: it is refused by name.

Found by trying its grammars on the official test suite, on random schemas and on hostile ones (llguidance 1.9).
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

MAX_DEPTH = 64
DATA_KEYWORDS = ("const", "enum", "default", "examples")
"""Keywords whose values are no schemas."""

_BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
_EXACT = 2**53
"""Beyond it the grammar compiler's numbers are no longer exact."""

_RAW_CONTROL = r"[\x00-\x07\x0b\x0e-\x1f\x7f]"
_CODE = "(?:0[0-7bBeEfF]|1[0-9a-fA-F]|7[fF])"
_CONTROL = rf"(?:{_RAW_CONTROL}|(?<!\\)(?:\\\\)*\\(?:x{_CODE}|u00{_CODE}|[xu]\{{|[av]))"
_CLASS = re.compile(r"\[(?:\\.|[^\]\\])*\]", re.DOTALL)
_RANGE = re.compile(rf"{_CONTROL}-(?:{_CONTROL}|\\.|[^\]\\])", re.DOTALL)
"""Ranges such as `[\x00-\x7f]`, which merely lose what cannot be written."""
_WRITABLE = "control characters other than backspace, form feed, newline, return and tab"


class SchemaRefused(Exception):
    """The schema is broken or cannot be enforced in full; the message says why."""


def check_depth(schema: object) -> None:
    """Refuse deep nesting, level by level, so that nothing ever recurses deeply. Raises SchemaRefused."""
    level: list[object] = [schema]
    for _ in range(MAX_DEPTH):
        level = [child for parent in level for child in _children(parent)]
        if not level:
            return
    raise SchemaRefused(f"it is nested deeper than {MAX_DEPTH} levels")


def check_keywords(schema: Mapping[str, Any], *, older_draft: bool) -> None:
    """Check one schema object, its subschemas apart. `older_draft`: `items` may be a list. Raises SchemaRefused."""
    _check_least_properties(schema)
    _check_bounds(schema)
    _check_constants(schema)
    _check_patterns(schema)
    if isinstance(schema.get("items"), list) and not older_draft:
        raise SchemaRefused("items must be one schema; a list of schemas is called prefixItems")
    reference = schema.get("$ref")
    if isinstance(reference, str) and any(part in DATA_KEYWORDS for part in reference.split("/")):
        raise SchemaRefused(f"$ref {reference!r} points to something that is no schema")


def _check_least_properties(schema: Mapping[str, Any]) -> None:
    """A name that is written twice would be counted twice."""
    least = schema.get("minProperties")
    closed = schema.get("additionalProperties") is False and "patternProperties" not in schema
    if isinstance(least, int | float) and least > 1 and not closed:
        raise SchemaRefused("minProperties above 1 needs additionalProperties: false and no patternProperties")


def _check_bounds(schema: Mapping[str, Any]) -> None:
    for key in _BOUNDS:
        bound = schema.get(key)
        if isinstance(bound, int | float) and abs(bound) > _EXACT:
            raise SchemaRefused(f"{key} is beyond the exact numbers, whose size is at most 2^53")


def _check_constants(schema: Mapping[str, Any]) -> None:
    """JSON writes some characters only as numbered escapes, which the grammar leaves out of the text silently."""
    for scalar in (scalar for key in ("const", "enum") for scalar in _scalars(schema.get(key))):
        if isinstance(scalar, str) and re.search(_RAW_CONTROL, scalar):
            raise SchemaRefused(f"const and enum must not hold {_WRITABLE}")
        if isinstance(scalar, int) and abs(scalar) > _EXACT:
            raise SchemaRefused("const and enum must not hold integers beyond the exact numbers (2^53)")


def _check_patterns(schema: Mapping[str, Any]) -> None:
    """See `_check_constants`."""
    named = schema.get("patternProperties")
    for pattern in (schema.get("pattern"), *(named if isinstance(named, Mapping) else ())):
        if isinstance(pattern, str) and re.search(_CONTROL, _CLASS.sub(_without_ranges, pattern)):
            raise SchemaRefused(f"the pattern {pattern!r} must not name {_WRITABLE}")


def _without_ranges(character_class: re.Match[str]) -> str:
    return _RANGE.sub("", character_class[0])


def _scalars(value: object) -> Iterator[object]:
    """Every string, number and the like in a value that is data, the keys of objects excepted."""
    if not isinstance(value, Mapping | list | tuple):
        yield value
    for child in _children(value):
        yield from _scalars(child)


def _children(value: object) -> Iterator[object]:
    if isinstance(value, Mapping):
        yield from value.values()
    elif isinstance(value, list | tuple):
        yield from value
