"""A model's chat template: messages in, the text of the prompt out, as transformers' `apply_chat_template` renders it.

The text that the requester wrote cannot forge a turn: every control token's string inside it is broken by `BREAK`
before the template sees it, so that only the template's own control tokens remain whole in the rendered text.
A default system prompt that a template brings (SmolLM2 and Qwen2.5 have one) is used as the template has it.
"""

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NoReturn

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from daemon.engine.types import Message
from daemon.errors import ConfigurationError, InvalidRequest

_PRIVATE_USE = range(0xE000, 0xF900)
_TEMPLATE_FAULTS = (jinja2.TemplateError, TypeError, ValueError, LookupError, ArithmeticError, AttributeError)
"""What a template, which is foreign code, can raise over messages it does not like."""


@dataclass(frozen=True)
class Rendered:
    """A rendered prompt. Requester's text holds `break_mark` wherever it would otherwise read as a control token."""

    text: str
    break_mark: str


class ChatTemplate:
    """Compiled once, rendered for each request.

    `variables` are the tokenizer's named tokens (`bos_token`, …). Raises ConfigurationError where it does not compile.
    """

    def __init__(self, source: str, variables: Mapping[str, str]) -> None:
        environment = _environment()
        try:
            self._template = environment.from_string(source)
            self._literals = _literal_text(environment.parse(source))
        except jinja2.TemplateError as error:
            raise ConfigurationError(f"the model's chat template does not compile: {error}") from error
        self._source = source
        self._variables = dict(variables)
        self.guard(())

    def guard(self, control_tokens: Collection[str]) -> None:
        """Set the strings that the requester's text must not form."""
        self._control = _ControlTokens(control_tokens)

    def mentions(self, token: str) -> bool:
        """True where the template itself writes `token`."""
        return token in self._literals

    def render(self, messages: Sequence[Message]) -> Rendered:
        """The prompt's text, ready to be continued by the model.

        A last message of the assistant is left open, so that the model continues it; an empty one is the plain
        generation prompt. Raises InvalidRequest (`messages`) with the template's words where it refuses.
        """
        break_mark, end_mark = self._unused_characters(messages)
        last = messages[-1]
        turns = [{"role": turn.role, "content": self._control.broken(turn.content, break_mark)} for turn in messages]
        if last.role != "assistant":
            return Rendered(self._render(turns, prompt=True), break_mark)
        if last.content == "":
            return Rendered(self._render(turns[:-1], prompt=True), break_mark)
        turns[-1]["content"] += end_mark
        text, found, _ = self._render(turns, prompt=False).rpartition(end_mark)
        if not found:
            raise InvalidRequest("the model's chat template drops the assistant message to be continued", "messages")
        return Rendered(text, break_mark)

    def _render(self, turns: list[dict[str, str]], *, prompt: bool) -> str:
        try:
            return self._template.render(
                messages=turns, tools=None, documents=None, add_generation_prompt=prompt, **self._variables
            )
        except _TEMPLATE_FAULTS as error:
            raise InvalidRequest(f"the model's chat template refuses these messages: {error}", "messages") from error

    def _unused_characters(self, messages: Sequence[Message]) -> tuple[str, str]:
        """Two private-use characters that occur neither in the messages nor in the template."""
        used = set(self._source).union(*(turn.content for turn in messages), *(turn.role for turn in messages))
        free = (chr(code) for code in _PRIVATE_USE if chr(code) not in used)
        try:
            return next(free), next(free)
        except StopIteration:
            raise InvalidRequest("the messages use every private-use character of Unicode", "messages") from None


class _ControlTokens:
    """Finds control tokens in text, and halves of them at its edges."""

    def __init__(self, tokens: Collection[str]) -> None:
        self._inside = re.compile(f"(?=({_any_of(tokens)}))(.)", re.DOTALL) if tokens else None
        heads = {token[:cut] for token in tokens for cut in range(1, len(token))}
        tails = {token[cut:] for token in tokens for cut in range(1, len(token))}
        self._head_at_end = tuple(heads)
        self._tail_at_start = tuple(tails)

    def broken(self, content: str, mark: str) -> str:
        """`content` with `mark` in every control token, and at an edge that the template's text could complete.

        White space around the content stays outside the marks, because templates trim it.
        """
        core = content.strip()
        if self._inside is None or not core:
            return content
        before, after = content[: content.index(core)], content[content.index(core) + len(core) :]
        start = mark if core.startswith(self._tail_at_start) else ""
        end = mark if core.endswith(self._head_at_end) else ""
        return before + start + self._inside.sub(rf"\2{mark}", core) + end + after


def _any_of(tokens: Collection[str]) -> str:
    return "|".join(re.escape(token) for token in sorted(tokens, key=len, reverse=True))


def _literal_text(tree: jinja2.nodes.Template) -> str:
    """All text that the template writes itself, its string constants included, parted by NUL."""
    texts = {node.data for node in tree.find_all(jinja2.nodes.TemplateData)}
    texts |= {node.value for node in tree.find_all(jinja2.nodes.Const) if isinstance(node.value, str)}
    return "\0".join(texts)


class _GenerationTag(jinja2.ext.Extension):
    """Lets `{% generation %}` blocks through; transformers uses them to mask training data, here they only print."""

    tags = {"generation"}  # noqa: RUF012 - jinja2's own declaration

    def parse(self, parser: jinja2.parser.Parser) -> list[jinja2.nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _environment() -> ImmutableSandboxedEnvironment:
    """The environment that chat templates are written for. Source: transformers `chat_template_utils.py`."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_GenerationTag, jinja2.ext.loopcontrols]
    )
    functions: dict[str, Callable[..., Any]] = {"raise_exception": _refuse, "strftime_now": _strftime_now}
    environment.globals.update(functions)
    environment.filters["tojson"] = _to_json
    return environment


def _refuse(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _strftime_now(pattern: str) -> str:
    return datetime.now().strftime(pattern)  # noqa: DTZ005 - local time is what templates expect


def _to_json(
    value: object,
    ensure_ascii: bool = False,  # noqa: FBT001, FBT002
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,  # noqa: FBT001, FBT002
) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
