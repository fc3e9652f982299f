"""Is the answer right? One verdict for each kind of expectation."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from daemon.evaluation.cases import Expectation


@dataclass(frozen=True)
class Score:
    """`fields` says for each expected field whether it is right; `valid_json` is None where no JSON was expected."""

    right: bool
    valid_json: bool | None = None
    fields: Mapping[str, bool] = field(default_factory=dict)


def score(expect: Expectation, answer: str | None) -> Score:
    """Judge an answer; None, where a request ended with an error, is wrong."""
    if expect.fields is not None:
        return _score_fields(expect.fields, answer)
    if answer is None:
        return Score(right=False)
    if expect.label is not None:
        return Score(right=answer == expect.label)
    if expect.regex is not None:
        return Score(right=re.search(expect.regex, answer) is not None)
    return Score(right=all(text.casefold() in answer.casefold() for text in expect.contains or ()))


def _score_fields(expected: Mapping[str, object], answer: str | None) -> Score:
    """A field is right where its value is equal; fields that nobody expects do not count."""
    found = _object(answer)
    fields = {
        name: found is not None and name in found and same_json(found[name], value) for name, value in expected.items()
    }
    return Score(right=all(fields.values()), valid_json=found is not None, fields=fields)


def _object(answer: str | None) -> dict[str, object] | None:
    try:
        found = json.loads(answer or "")
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def same_json(left: object, right: object) -> bool:
    """Equality of JSON values: numbers by value (1 and 1.0 are the same), true is not 1, text to the letter."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        return len(left) == len(right) and all(map(same_json, left, right))
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        return left.keys() == right.keys() and all(same_json(left[key], right[key]) for key in left)
    return left == right
