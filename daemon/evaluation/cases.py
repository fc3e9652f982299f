"""The cases: one JSON object a line, with the messages to send and what the answer should be."""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, Field, ValidationError, model_validator

from schemas.errors import RequestError, refused, shown
from schemas.refusals import first_refusal, misfit
from schemas.request import ChatMessage, WireModel
from schemas.strict_json import parse_json


class CasesError(Exception):
    """The cases, or what belongs to them, cannot be used; the message names file, line, field, value and what fits."""


def _listed(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value


def _one_or_more(value: object) -> object:
    return (value,) if isinstance(value, str) else _listed(value)


def _check_pattern(pattern: str) -> None:
    try:
        re.compile(pattern)
    except re.error as error:
        raise misfit(f"a regular expression ({error})", at=("regex",)) from error


class Expectation(WireModel):
    """What the answer should be: exactly one of the four.

    `label`: one of the labels of the run; `fields`: these values in a JSON object; `regex`: found in the answer
    (Python's `re.search`); `contains`: each of these texts occurs in it, upper and lower case alike.
    """

    label: str | None = None
    fields: Mapping[str, Any] | None = Field(None, min_length=1)
    regex: str | None = None
    contains: Annotated[tuple[str, ...], BeforeValidator(_one_or_more)] | None = Field(None, min_length=1)

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        given = [name for name in type(self).model_fields if getattr(self, name) is not None]
        if len(given) != 1:
            raise misfit("exactly one of label, fields, regex, contains")
        if self.regex is not None:
            _check_pattern(self.regex)
        return self

    @property
    def kind(self) -> str:
        """Which of the four it is."""
        return next(name for name in type(self).model_fields if getattr(self, name) is not None)


class Case(WireModel):
    """One case. `text` stands for a single user message; `request` holds further fields of the request.

    `group` is any word that the report should count separately by, such as the language.
    """

    id: str = Field("", max_length=200)
    group: str = Field("", max_length=100)
    text: str | None = None
    messages: Annotated[tuple[ChatMessage, ...], BeforeValidator(_listed)] | None = Field(None, min_length=1)
    expect: Expectation
    request: Mapping[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _text_or_messages(self) -> Self:
        if (self.text is None) == (self.messages is None):
            raise misfit("exactly one of text, messages")
        for name in ("messages", "stream"):
            if name in self.request:
                raise misfit("a field of the request other than messages and stream", at=("request", name))
        return self

    @property
    def turns(self) -> tuple[ChatMessage, ...]:
        """The messages of the case itself."""
        return self.messages or (ChatMessage(role="user", content=self.text or ""),)

    @property
    def digest(self) -> str:
        """Names the case by its content: a case that was changed is another one."""
        return digest_of(self.model_dump(mode="json"))


def digest_of(value: object) -> str:
    """16 hex digits that stand for a JSON value."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def read_cases(path: Path) -> list[Case]:
    """Read all cases; an empty line is passed over. Raises CasesError at the first that is wrong."""
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise CasesError(f"{path}: cannot be read: {error.strerror or error}") from error
    cases: list[Case] = []
    seen: dict[str, int] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        case = _case(line, f"{path}, line {number}", number)
        if case.id in seen:
            raise CasesError(f"{path}, line {number}: id: got {shown(case.id)}, which line {seen[case.id]} has already")
        seen[case.id] = number
        cases.append(case)
    if not cases:
        raise CasesError(f"{path}: holds no case; each line is a JSON object with text and expect")
    return cases


def _case(line: bytes, where: str, number: int) -> Case:
    try:
        data = parse_json(line)
        if not isinstance(data, dict):
            raise refused((), shown(data), "a JSON object")
        return Case.model_validate({"id": f"line-{number}"} | data)
    except ValidationError as error:
        raise CasesError(f"{where}: {first_refusal(error, data)}") from error
    except RequestError as error:
        raise CasesError(f"{where}: {error}") from error


def labels_of(cases: Sequence[Case]) -> tuple[str, ...]:
    """Every expected label once, in the order of the file."""
    return tuple(dict.fromkeys(case.expect.label for case in cases if case.expect.label is not None))
