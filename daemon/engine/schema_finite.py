"""Does every part of a schema allow a finite value? One that requires itself inside itself would never end."""

from collections.abc import Iterator, Mapping
from typing import Any

from daemon.engine.schema_overlap import referred


def allows_finite_values(root: Mapping[str, Any]) -> bool:
    """False where all values that match the schema, or some part of it, would have to be infinite.

    A least fixed point: at first no schema has a finite value; one gains it as soon as all that it requires has one.
    Only references and requirements are looked at, so True is no promise that a value exists.
    """
    schemas = list(_all_schemas(root))
    finite: set[int] = set()
    while True:
        found = {id(schema) for schema in schemas if _is_finite(root, schema, finite)}
        if found == finite:
            return len(finite) == len({id(schema) for schema in schemas})
        finite = found


def _all_schemas(value: object) -> Iterator[Mapping[str, Any]]:
    if isinstance(value, Mapping):
        yield value
        for part in value.values():
            yield from _all_schemas(part)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _all_schemas(part)


def _is_finite(root: Mapping[str, Any], schema: Mapping[str, Any], finite: set[int]) -> bool:
    def ready(part: object) -> bool:
        return not isinstance(part, Mapping) or id(part) in finite

    if not ready(referred(root, schema.get("$ref"))):
        return False
    if not all(map(ready, _items(schema.get("allOf")))):
        return False
    if not all(any(map(ready, _items(schema[key]))) for key in ("anyOf", "oneOf") if _items(schema.get(key))):
        return False
    return all(map(ready, _required_parts(schema)))


def _required_parts(schema: Mapping[str, Any]) -> Iterator[object]:
    """The subschemas that every matching value must have a value for: required properties, the least items."""
    kind = schema.get("type")
    properties = schema.get("properties")
    if kind in ("object", ["object"]) and isinstance(properties, Mapping):
        yield from (properties[name] for name in _items(schema.get("required")) if name in properties)
    least = schema.get("minItems")
    if kind in ("array", ["array"]) and isinstance(least, int | float) and least > 0:
        first = _items(schema.get("prefixItems"))
        yield from first[: int(least)]
        if least > len(first):
            yield schema.get("items")


def _items(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
