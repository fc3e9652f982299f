"""Schemas on their way to the grammar compiler: what is refused by name, what is said in other words."""

import json
from typing import Any

import pytest

from daemon.engine.json_schema import MAX_CHARACTERS, prepare_schema
from daemon.engine.schema_checks import MAX_DEPTH, SchemaRefused

KIND_A = {"type": "object", "properties": {"kind": {"const": "a"}}, "required": ["kind"]}
KIND_B = {"type": "object", "properties": {"kind": {"enum": ["b", "c"]}}, "required": ["kind"]}


def rewritten(schema: Any) -> Any:
    return json.loads(prepare_schema(schema).text)


def nested(depth: int) -> dict[str, Any]:
    """A schema of `depth` levels of objects."""
    schema: dict[str, Any] = {}
    for _ in range((depth - 1) // 2):
        schema = {"properties": {"a": schema}}
    return schema


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        (True, {}),
        ({"uniqueItems": False}, {}),
        ({"maxItems": 2.0, "items": {"minLength": 1.0}}, {"maxItems": 2, "items": {"minLength": 1}}),
        ({"if": {"const": 1}, "type": "integer"}, {"type": "integer"}),
        ({"then": {"const": 1}, "else": {}}, {}),
        ({"minContains": 2}, {}),
        ({"const": {"uniqueItems": False}}, {"const": {"uniqueItems": False}}),
        ({"properties": {"uniqueItems": False}}, {"properties": {"uniqueItems": False}}),
        ({"oneOf": [{"type": "string"}, {"type": "null"}]}, {"anyOf": [{"type": "string"}, {"type": "null"}]}),
        ({"oneOf": [{"const": 1}, {"enum": [2, True]}]}, {"anyOf": [{"const": 1}, {"enum": [2, True]}]}),
        ({"oneOf": [KIND_A, KIND_B]}, {"anyOf": [KIND_A, KIND_B]}),
        ({"anyOf": [{}], "oneOf": [KIND_A]}, {"anyOf": [{}], "allOf": [{"anyOf": [KIND_A]}]}),
    ],
)
def test_other_words_for_the_same(schema: Any, expected: Any) -> None:
    """Guards the rewriting, and that data (`const`) and property names are left alone."""
    assert rewritten(schema) == expected


@pytest.mark.parametrize(
    "branches",
    [
        [{"type": "integer"}, {"type": "number"}],
        [{"type": ["string", "null"]}, {"type": "null"}],
        [{"const": 1}, {"const": 1.0}],
        [{"const": {"a": 1}}, {"const": {"a": 2}}],
        [{}, {"type": "string"}],
        [KIND_A, {**KIND_B, "required": []}],
        [KIND_A, KIND_A],
        [{"minimum": 1}, {"maximum": 0}],
    ],
)
def test_alternatives_that_may_overlap_stay(branches: list[Any]) -> None:
    """Guards against `oneOf` weakened to `anyOf` where a value could match twice."""
    assert "oneOf" in rewritten({"oneOf": branches})


def test_alternatives_are_told_apart_through_references() -> None:
    """Guards the unions that pydantic writes."""
    definitions = {"A": KIND_A, "B": KIND_B}
    schema = {"oneOf": [{"$ref": "#/$defs/A"}, {"$ref": "#/$defs/B"}], "$defs": definitions}
    assert "anyOf" in rewritten(schema)


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        (False, "no answer"),
        ({"x-guidance": {"lenient": True}}, "x-guidance"),
        ({"type": "object", "minProperties": 2}, "minProperties"),
        ({"minimum": 2**53 + 1}, "minimum is beyond the exact numbers"),
        ({"items": {"exclusiveMaximum": -1e300}}, "exclusiveMaximum is beyond"),
        ({"const": 2**53 + 1}, "integers beyond"),
        ({"enum": [["a\x00"]]}, "control characters"),
        ({"pattern": "^a\\x01$"}, "control characters"),
        ({"patternProperties": {"\\u0007": {}}}, "control characters"),
        ({"items": [{"type": "string"}]}, "prefixItems"),
        ({"default": {"minProperties": 5}, "$ref": "#/default"}, "no schema"),
        ({"$ref": "#"}, "requires itself"),
        ({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}, "requires itself"),
        ({"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]}, "requires itself"),
        ({"type": "array", "minItems": 1, "items": {"$ref": "#"}}, "requires itself"),
        ({"const": float("inf")}, "no JSON"),
        ({"const": {1, 2}}, "no JSON"),
        ({"description": "x" * MAX_CHARACTERS}, "characters long"),
    ],
)
def test_what_would_be_enforced_in_part_is_refused(schema: Any, reason: str) -> None:
    """Guards against answers that do not validate although the request was accepted."""
    with pytest.raises(SchemaRefused, match=reason):
        prepare_schema(schema)


@pytest.mark.parametrize(
    "schema",
    [
        {"minProperties": 1},
        {"minProperties": 2, "additionalProperties": False, "properties": {"a": {}, "b": {}}},
        {"pattern": "^[\\x00-\\x7f]*$"},
        {"pattern": "^a\\\\x01$"},
        {"const": "tab\tnewline\n"},
        {"items": [{"type": "string"}], "$schema": "http://json-schema.org/draft-07/schema#"},
        {"type": "object", "properties": {"next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}}, "required": ["next"]},
        {"type": "array", "items": {"$ref": "#"}},
        {"anyOf": [{"$ref": "#"}, {"type": "string"}]},
        {"$ref": "https://example.org/elsewhere"},
        {"properties": {"const": {"type": "string"}, "$ref": {"type": "string"}}},
    ],
)
def test_what_only_looks_similar_is_let_through(schema: Any) -> None:
    """Guards against refusals of sound schemas (the last but one is the compiler's to refuse)."""
    assert rewritten(schema) == schema


@pytest.mark.parametrize("depth", [MAX_DEPTH + 2, 100, 1000, 20_000, 1_000_000])
def test_depth_has_an_explicit_limit(depth: int) -> None:
    """Guards against RecursionError, on every interpreter."""
    with pytest.raises(SchemaRefused, match=f"deeper than {MAX_DEPTH} levels"):
        prepare_schema(nested(depth))


def test_the_deepest_schema_allowed_is_prepared() -> None:
    """Guards the limit itself."""
    assert rewritten(nested(MAX_DEPTH - 1)) == nested(MAX_DEPTH - 1)


def test_only_small_plain_schemas_skip_the_trial() -> None:
    """Guards the shortcut: whatever can be costly to compile is tried out in a process of its own."""
    plain = {"type": "object", "properties": {"pattern": {"type": "string", "maxLength": 5}}, "required": ["pattern"]}
    assert prepare_schema(plain).harmless
    assert not prepare_schema({"type": "string", "pattern": "a"}).harmless
    assert not prepare_schema({"items": {"allOf": [{}]}}).harmless
    assert not prepare_schema({"enum": ["x" * 5000]}).harmless
