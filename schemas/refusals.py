"""From pydantic's errors to one plain sentence: the place, the value found there, and what was expected."""

from collections.abc import Mapping, Sequence

from pydantic import ValidationError
from pydantic_core import ErrorDetails, PydanticCustomError

from schemas.errors import PathPart, RequestError, json_path, refused, shown

_MISFIT = "misfit"

_EXPECTED: Mapping[str, str] = {
    "string_type": "a string",
    "int_type": "an integer",
    "float_type": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "tuple_type": "a list",
    "model_type": "an object",
    "model_attributes_type": "an object",
    "literal_error": "{expected}",
    "greater_than": "more than {gt}",
    "greater_than_equal": "at least {ge}",
    "less_than_equal": "at most {le}",
    "too_short": "{min_length} or more items",
    "too_long": "at most {max_length} items",
    "string_too_short": "{min_length} or more characters",
    "string_too_long": "at most {max_length} characters",
    "string_pattern_mismatch": "text that matches {pattern}",
    "missing": "this required field",
    _MISFIT: "{expected}",
}


def misfit(expected: str, *, at: tuple[PathPart, ...] = (), got: str | None = None) -> PydanticCustomError:
    """Build the error for a validator to raise.

    `at` is the place below the validated object, `got` what was found there where its value does not say it.
    """
    return PydanticCustomError(_MISFIT, "expected {expected}", {"expected": expected, "at": at, "got": got})


def nested(error: ValidationError, index: int, data: object) -> PydanticCustomError:
    """Lift the first error of the list item `index`, which was validated apart, to the place where it belongs."""
    details = error.errors(include_url=False)[0]
    return misfit(_expected(details), at=(index, *_place(details, data)), got=_got(details))


def first_refusal(error: ValidationError, data: object) -> RequestError:
    """Say the first error of a validation of `data`."""
    details = error.errors(include_url=False)[0]
    place = _place(details, data)
    found, value = _look_up(data, place)
    if found:
        return refused(place, _got(details) or shown(value), _expected(details))
    path = json_path(place)
    return RequestError(f"{path}: missing, expected {_expected(details)}", path)


def _got(details: ErrorDetails) -> str | None:
    got = details.get("ctx", {}).get("got")
    return got if isinstance(got, str) else None


def _expected(details: ErrorDetails) -> str:
    template = _EXPECTED.get(details["type"])
    context = {name: _plain(value) for name, value in details.get("ctx", {}).items()}
    return details["msg"] if template is None else template.format(**context)


def _plain(value: object) -> object:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _place(details: ErrorDetails, data: object) -> tuple[PathPart, ...]:
    """Where the error is in the JSON as it was sent: a single stop string, for example, has no index there."""
    parts = (*details["loc"], *details.get("ctx", {}).get("at", ()))
    place: list[PathPart] = []
    for part in parts:
        _, holder = _look_up(data, place)
        if isinstance(part, str) or isinstance(holder, list):
            place.append(part)
    return tuple(place)


def _look_up(data: object, place: Sequence[PathPart]) -> tuple[bool, object]:
    """Say whether there is a value at `place`, and which."""
    for part in place:
        match data:
            case dict() if part in data:
                data = data[part]
            case list() if isinstance(part, int) and part < len(data):
                data = data[part]
            case _:
                return False, None
    return True, data
