"""Turns schemas and regular expressions into llguidance matchers, and tries out the risky ones in a process of its own.

Compiling cannot be interrupted, and a few lines of schema (intersected patterns, large `multipleOf`) can keep it busy
for minutes or exhaust the memory. So an unknown grammar is first compiled in a short-lived child process that the
system stops at `CPU_SECONDS` and `MEMORY_BYTES`; only what passes is compiled here. The child runs this file by its
path: nothing but the standard library and llguidance may be imported.
"""

import json
import resource
import subprocess
import sys
from typing import TYPE_CHECKING, Literal

from llguidance import LLMatcher, LLParserLimits, LLTokenizer

if TYPE_CHECKING:
    from llguidance._lib import JsonCompileOptions

CPU_SECONDS = 2
"""Processor time that compiling one grammar may take, the child's own start (0.2 s) included."""
WALL_SECONDS = 20
"""The same in wall-clock time, for machines that are busy with something else."""
MEMORY_BYTES = 2 * 2**30
"""Address space of the child."""

Kind = Literal["json_schema", "regex"]

_JSON_OPTIONS: "JsonCompileOptions" = {
    "whitespace_flexible": False,
    "item_separator": ",",
    "key_separator": ":",
    "lenient": False,
    "coerce_one_of": False,
    # Without `u`: a key written as `\u0066oo` would pass for an additional property and yet be the property `foo`.
    "json_allowed_escapes": 'nrtbf\\"',
    "json_allow_general_unicode_escapes": False,
}


class GrammarRefused(Exception):
    """The grammar cannot be compiled; the message says why."""


def build_matcher(tokenizer: LLTokenizer, kind: Kind, text: str) -> LLMatcher:
    """Compile `text`, a JSON Schema in JSON or a regular expression, and take the first step.

    Raises GrammarRefused where it is broken, not supported, too large, or allows no answer at all.
    """
    try:
        grammar = _grammar(kind, text)
    except ValueError as error:
        raise GrammarRefused(_one_line(str(error))) from error
    limits = LLParserLimits(max_grammar_size=100_000, verbose_errors=False)
    matcher = LLMatcher(tokenizer, grammar, log_level=0, limits=limits)
    if matcher.is_error():
        raise GrammarRefused(_one_line(matcher.get_error()))
    if not any(matcher.compute_bitmask()) or matcher.is_error():
        raise GrammarRefused("it allows no answer at all")
    return matcher


def _grammar(kind: Kind, text: str) -> str:
    if kind == "regex":
        return LLMatcher.grammar_from_regex(text)
    return LLMatcher.grammar_from_json_schema(text, overrides=_JSON_OPTIONS)


def _one_line(text: str) -> str:
    return " ".join(text.split())[:500]


def try_out(kind: Kind, text: str) -> None:
    """Compile in a child process and throw the result away. Raises GrammarRefused; also on the limits above."""
    request = json.dumps({"kind": kind, "text": text})
    command = [sys.executable, "-P", __file__]
    try:
        child = subprocess.run(  # noqa: S603 - this file, with our own interpreter
            command,
            input=request,
            capture_output=True,
            text=True,
            timeout=WALL_SECONDS,
            start_new_session=True,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise GrammarRefused(f"compiling it takes more than {WALL_SECONDS} seconds") from error
    if child.returncode < 0 or child.stderr.startswith("memory allocation"):
        raise GrammarRefused(
            f"compiling it takes more than {CPU_SECONDS} seconds of processor time, or too much memory"
        )
    if child.returncode > 0:
        raise RuntimeError(f"the grammar compiler cannot be run: {_one_line(child.stderr[-500:])}")
    reason = json.loads(child.stdout)
    if reason is not None:
        raise GrammarRefused(reason)


def _main() -> None:
    """The child: a request on standard input, the reason for refusing it, or null, on standard output."""
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    request = json.load(sys.stdin)
    reason = None
    try:
        build_matcher(LLTokenizer("byte"), request["kind"], request["text"])
    except GrammarRefused as error:
        reason = str(error)
    json.dump(reason, sys.stdout)


if __name__ == "__main__":
    _main()
