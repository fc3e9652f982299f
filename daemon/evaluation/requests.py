"""From a case and the options of a run to the body of a request."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from daemon.evaluation.cases import Case, CasesError, digest_of, labels_of
from schemas.request import TOKEN_LIMIT_NAMES

TEXT = "{text}"
"""Stands in a template for the user's message."""


@dataclass(frozen=True)
class RunOptions:
    """What a run adds to every case; its digest, with the labels, tells runs apart.

    `before`: messages put before those of the case, such as a system message and examples; `template`: text with
    `{text}`, which stands for each user message, those of the examples included; `labels`: the choice for
    cases that expect a label; `json_schema`: the form for cases that expect fields, any JSON object without one.
    """

    before: tuple[Mapping[str, str], ...] = ()
    template: str | None = None
    labels: tuple[str, ...] = ()
    json_schema: Mapping[str, Any] | bool | None = None
    model: str | None = None
    max_new_tokens: int = 256
    temperature: float = 0.0
    seed: int | None = None
    timeout: float | None = None

    @property
    def digest(self) -> str:
        """Names the options by their content."""
        return digest_of(asdict(self))


def with_labels(options: RunOptions, cases: Sequence[Case]) -> RunOptions:
    """Take the labels from the cases where none are given. Raises CasesError for labels that cannot be a choice."""
    found = labels_of(cases)
    labels = options.labels or found
    if found and len(labels) < 2:
        raise CasesError(f"the cases know only the label {labels[0]!r}; name all labels with --choice")
    for case in cases:
        allowed = _choice_of_its_own(case) or labels
        if case.expect.label is not None and case.expect.label not in allowed:
            raise CasesError(f"case {case.id!r} expects {case.expect.label!r}, which is not among {', '.join(allowed)}")
    return replace(options, labels=labels if found else ())


def body_of(case: Case, options: RunOptions) -> dict[str, Any]:
    """The request for a case; what the case itself says about the request wins."""
    given = {name: value for name, value in case.request.items() if value is not None}
    body = _sampling(options, given)
    if "response_format" not in given and "structured_outputs" not in given:
        body |= _form(case, options)
    own = [{"role": message.role, "content": message.content} for message in case.turns]
    return {"messages": [_written(message, options.template) for message in (*options.before, *own)], **body, **given}


def _written(message: Mapping[str, str], template: str | None) -> dict[str, str]:
    if template is None or message["role"] != "user":
        return dict(message)
    return {"role": "user", "content": template.replace(TEXT, message["content"])}


def _sampling(options: RunOptions, given: Mapping[str, Any]) -> dict[str, Any]:
    wanted = {name: getattr(options, name) for name in ("model", "temperature", "seed", "timeout")}
    if not any(name in given for name in TOKEN_LIMIT_NAMES):
        wanted["max_new_tokens"] = options.max_new_tokens
    return {name: value for name, value in wanted.items() if value is not None}


def _form(case: Case, options: RunOptions) -> dict[str, Any]:
    """How the answer must look; free text for cases that expect a pattern or a text."""
    if case.expect.label is not None:
        return {"structured_outputs": {"choice": list(options.labels)}}
    if case.expect.fields is None:
        return {}
    if options.json_schema is None:
        return {"response_format": {"type": "json_object"}}
    named = {"name": "answer", "schema": options.json_schema}
    return {"response_format": {"type": "json_schema", "json_schema": named}}


def _choice_of_its_own(case: Case) -> tuple[str, ...]:
    outputs = case.request.get("structured_outputs")
    choice = outputs.get("choice") if isinstance(outputs, Mapping) else None
    return tuple(map(str, choice)) if isinstance(choice, list | tuple) else ()
