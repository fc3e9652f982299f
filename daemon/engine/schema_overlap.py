"""Can two schemas match the same value? A cautious answer, enough for the unions that programs generate."""

import re
from collections.abc import Mapping
from typing import Any

_MAX_HOPS = 16


def resolve(root: Mapping[str, Any], schema: object) -> object:
    """Follow references within the document (`#/$defs/name`); what cannot be followed is returned as it is."""
    for _ in range(_MAX_HOPS):
        if not isinstance(schema, Mapping) or not isinstance(schema.get("$ref"), str) or len(schema) > 1:
            return schema
        target = referred(root, schema["$ref"])
        if target is None:
            return schema
        schema = target
    return schema


def referred(root: Mapping[str, Any], reference: object) -> object | None:
    """What a JSON pointer (`#/$defs/name`, `#`) refers to within the document; None for anything else."""
    if not isinstance(reference, str) or not re.match("#(/|$)", reference):
        return None
    place: object = root
    for step in reference.split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        if not isinstance(place, Mapping) or name not in place:
            return None
        place = place[name]
    return place


def disjoint(root: Mapping[str, Any], one: object, other: object) -> bool:
    """True where surely no value matches both: other types, other constants, or a required property that tells."""
    if not isinstance(one, Mapping) or not isinstance(other, Mapping):
        return False
    if _apart(_types(one), _types(other)) or _apart(_values(one), _values(other)):
        return True
    if _types(one) != {"object"} or _types(other) != {"object"}:
        return False
    return any(_apart(_tag(root, one, name), _tag(root, other, name)) for name in _required(one) & _required(other))


def _apart(one: set[Any] | None, other: set[Any] | None) -> bool:
    return one is not None and other is not None and not one & other


def _types(schema: Mapping[str, Any]) -> set[str] | None:
    """The types of matching values; an integer is a number. None where the schema does not say."""
    named = schema.get("type")
    names = [named] if isinstance(named, str) else named
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        return None
    return {"number" if name == "integer" else name for name in names}


def _values(schema: object) -> set[tuple[bool, Any]] | None:
    """The matching values where they are listed and all scalar; truth values are kept apart from 0 and 1."""
    if not isinstance(schema, Mapping) or not ("const" in schema or "enum" in schema):
        return None
    values = [schema["const"]] if "const" in schema else schema["enum"]
    if not isinstance(values, list) or any(isinstance(value, Mapping | list) for value in values):
        return None
    return {(isinstance(value, bool), value) for value in values}


def _tag(root: Mapping[str, Any], schema: Mapping[str, Any], name: str) -> set[tuple[bool, Any]] | None:
    properties = schema.get("properties")
    return _values(resolve(root, properties.get(name))) if isinstance(properties, Mapping) else None


def _required(schema: Mapping[str, Any]) -> set[str]:
    names = schema.get("required")
    return {name for name in names if isinstance(name, str)} if isinstance(names, list) else set()
