"""JSON Schemas made ready for llguidance.

What it would enforce only in part is refused (`schema_checks`); what it does not know, but what can be said without a
change of meaning in words that it knows, is rewritten here. The dialect is draft 2020-12, or the older draft that
`$schema` names.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from daemon.engine.schema_checks import DATA_KEYWORDS, SchemaRefused, check_depth, check_keywords
from daemon.engine.schema_finite import allows_finite_values
from daemon.engine.schema_overlap import disjoint, resolve

MAX_CHARACTERS = 65_536
"""Of the schema written as compact JSON."""

Schema = Mapping[str, Any] | bool

_MAPS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_COUNTS = ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties")
_IDLE_WITHOUT = {"minContains": ("contains",), "maxContains": ("contains",), "then": ("if",), "else": ("if",)}
"""Keywords that say nothing where none of these stands beside them (draft 2020-12)."""

_PLAIN = {"type", "properties", "required", "additionalProperties", "items", "enum", "const", "anyOf", "$ref", "$defs"}
_PLAIN |= {"title", "description", "default", "examples"}
_PLAIN |= {"minimum", "maximum", "minItems", "maxItems", "minLength", "maxLength"}
_PLAIN_CHARACTERS = 4096


@dataclass(frozen=True)
class PreparedSchema:
    """A schema for the grammar compiler, as compact JSON. `harmless`: small, and no keyword is costly to compile."""

    text: str
    harmless: bool


def prepare_schema(schema: Schema) -> PreparedSchema:
    """Make a schema ready for the grammar compiler. Raises SchemaRefused."""
    check_depth(schema)
    if isinstance(schema, bool):
        if not schema:
            raise SchemaRefused("false allows no answer at all")
        schema = {}
    if "x-guidance" in schema:
        raise SchemaRefused("x-guidance is not supported")
    if not allows_finite_values(schema):
        raise SchemaRefused("it, or a part of it, requires itself inside itself and could never end")
    rewriter = _Rewriter(schema)
    try:
        text = json.dumps(rewriter.schema(schema), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise SchemaRefused(f"it is no JSON: {error}") from error
    if len(text) > MAX_CHARACTERS:
        raise SchemaRefused(f"it is {len(text)} characters long, more than {MAX_CHARACTERS}")
    return PreparedSchema(text, rewriter.keywords <= _PLAIN and len(text) <= _PLAIN_CHARACTERS)


class _Rewriter:
    """Rewrites one document; knows its root, which references start from."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._older_draft = "2020-12" not in str(root.get("$schema", "2020-12"))
        self.keywords: set[str] = set()

    def schema(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        """A schema with the same meaning, its subschemas included."""
        check_keywords(schema, older_draft=self._older_draft)
        self.keywords.update(schema)
        result = {key: self._value(key, value) for key, value in schema.items() if not _says_nothing(schema, key)}
        branches = result.get("oneOf")
        if isinstance(branches, list) and self._exclusive(branches):
            del result["oneOf"]
            if "anyOf" in result:
                result["allOf"] = [*_listed(result.get("allOf")), {"anyOf": branches}]
            else:
                result["anyOf"] = branches
        return result

    def _value(self, key: str, value: object) -> object:
        if key in DATA_KEYWORDS:
            return value
        if key in _MAPS and isinstance(value, Mapping):
            return {name: self._subschema(part) for name, part in value.items()}
        if isinstance(value, list | tuple):
            return [self._subschema(part) for part in value]
        if key in _COUNTS and isinstance(value, float) and value.is_integer():
            return int(value)
        return self._subschema(value)

    def _subschema(self, value: object) -> object:
        return self.schema(value) if isinstance(value, Mapping) else value

    def _exclusive(self, branches: list[Any]) -> bool:
        """True where no value can match two of the branches, so that `oneOf` means the same as `anyOf`."""
        resolved = [resolve(self._root, branch) for branch in branches]
        return len(branches) > 0 and all(disjoint(self._root, one, other) for one, other in combinations(resolved, 2))


def _listed(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _says_nothing(schema: Mapping[str, Any], key: str) -> bool:
    if key == "uniqueItems":
        return schema[key] is False
    if key == "if":
        return "then" not in schema and "else" not in schema
    return key in _IDLE_WITHOUT and not any(other in schema for other in _IDLE_WITHOUT[key])
