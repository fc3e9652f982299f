"""Twenty schemas of the kinds that services send: extraction, routing, nesting, unions, bounds, other scripts."""

from typing import Any


def record(**properties: Any) -> dict[str, Any]:
    """A closed object whose properties are all required."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


TEXT = {"type": "string", "maxLength": 24}
CITY = record(name=TEXT, country={"enum": ["France", "日本", "Österreich", "Ελλάδα"]})

EVERYDAY_SCHEMAS: dict[str, dict[str, Any]] = {
    "person": record(name=TEXT, age={"type": "integer", "minimum": 0, "maximum": 130}),
    "sentiment": record(
        label={"enum": ["positive", "neutral", "negative"]}, score={"type": "number", "minimum": 0, "maximum": 1}
    ),
    "city": CITY,
    "address": record(
        street=TEXT, house={"type": "integer"}, zip={"type": "string", "pattern": "^[0-9]{5}$"}, city=CITY
    ),
    "tags": {"type": "array", "items": {"type": "string", "maxLength": 12}, "minItems": 1, "maxItems": 4},
    "flags": record(urgent={"type": "boolean"}, spam={"type": "boolean"}, reply={"type": ["boolean", "null"]}),
    "date": record(on={"type": "string", "format": "date"}, at={"type": "string", "format": "time"}),
    "identifier": record(
        id={"type": "string", "format": "uuid"}, mail={"type": "string", "format": "email", "maxLength": 30}
    ),
    "optional": {
        "type": "object",
        "properties": {"a": TEXT, "b": {"type": "integer"}, "c": {"type": "boolean"}},
        "required": ["b"],
        "additionalProperties": False,
    },
    "union": {
        "anyOf": [
            record(kind={"const": "text"}, text=TEXT),
            record(kind={"const": "number"}, value={"type": "integer"}),
        ]
    },
    "tagged": {
        "oneOf": [{"$ref": "#/$defs/Cat"}, {"$ref": "#/$defs/Dog"}],
        "$defs": {
            "Cat": record(type={"const": "cat"}, lives={"type": "integer", "minimum": 1, "maximum": 9}),
            "Dog": record(type={"const": "dog"}, good={"const": True}),
        },
    },
    "tuple": {
        "type": "array",
        "prefixItems": [{"type": "string", "maxLength": 8}, {"type": "integer"}],
        "items": False,
        "minItems": 2,
    },
    "tree": {
        "$ref": "#/$defs/Node",
        "$defs": {
            "Node": record(value={"type": "integer"}, next={"anyOf": [{"$ref": "#/$defs/Node"}, {"type": "null"}]})
        },
    },
    "money": record(
        amount={"type": "integer", "minimum": 1, "maximum": 100000},
        currency={"type": "string", "pattern": "^[A-Z]{3}$"},
    ),
    "matrix": {
        "type": "array",
        "items": {
            "type": "array",
            "items": {"type": "integer", "minimum": -9, "maximum": 9},
            "minItems": 2,
            "maxItems": 2,
        },
        "minItems": 2,
        "maxItems": 2,
    },
    "tool call": record(
        name={"enum": ["search", "open"]}, arguments=record(query=TEXT, limit={"type": "integer", "multipleOf": 5})
    ),
    "all of": {
        "allOf": [
            record(a=TEXT) | {"additionalProperties": True},
            {"properties": {"b": {"type": "integer"}}, "required": ["b"]},
        ]
    },
    "number": {"type": "number", "exclusiveMinimum": 0, "maximum": 10},
    "quoted": record(**{'a "b"': {"enum": ['say "hi"', "back\\slash", "tab\t"]}, "é/ß": {"type": "null"}}),
    "map": {
        "type": "object",
        "patternProperties": {"^[a-z]{1,6}$": {"type": "integer", "minimum": 0, "maximum": 99}},
        "additionalProperties": False,
        "minProperties": 1,
        "maxProperties": 3,
    },
}
