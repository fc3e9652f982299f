"""Writes the table: `python -m tests.schema_suite.report`. Ends with 1 where a judgement is wrong or unexplained."""

import json
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from daemon.engine.tokenizer import load_tokenizer
from tests.schema_suite.suite import Case, Judgement, run_suite
from tests.support.scripted_model import write_scripted_model


def explain_rejection(case: Case, judgement: Judgement) -> str | None:
    """Why a valid instance is not accepted, None where there is no known reason."""
    if "format" in json.dumps(case.schema):
        return "format is enforced; to the draft it is an annotation"
    if any(ord(character) < ord(" ") for character in str(judgement.instance)):
        return "control characters are written only as \\b \\f \\n \\r \\t"
    return None


def main() -> int:
    """Run the suite and write it as Markdown."""
    with tempfile.TemporaryDirectory() as directory:
        tokenizer = load_tokenizer(write_scripted_model(Path(directory), ["x"]))
        cases = list(run_suite(tokenizer, tokenizer.vocab_size))
    wrong = [(case, one) for case in cases for one in case.judgements if one.accepted and not one.valid]
    rejected = [(case, one) for case in cases for one in case.judgements if one.valid and not one.accepted]
    lines = [*_table(cases), *_refusals(cases), *_rejections(rejected)]
    lines += [f"WRONG: {case.file}, {case.description}: accepts the invalid {one.instance!r}" for case, one in wrong]
    sys.stdout.write("\n".join(lines) + "\n")
    return 1 if wrong or any(explain_rejection(case, one) is None for case, one in rejected) else 0


def _table(cases: list[Case]) -> Iterator[str]:
    enforced = Counter(case.file for case in cases if case.refused is None)
    refused = Counter(case.file for case in cases if case.refused is not None)
    yield "| keyword file | schemas enforced | schemas refused |\n|---|---|---|"
    for file in sorted({case.file for case in cases}):
        yield f"| {file} | {enforced[file]} | {refused[file]} |"
    yield f"| **all** | {enforced.total()} | {refused.total()} |\n"
    yield f"{sum(len(case.judgements) for case in cases)} instances were judged.\n"


def _refusals(cases: list[Case]) -> Iterator[str]:
    yield "Refused schemas:\n"
    for case in cases:
        if case.refused is not None:
            yield f"- {case.file}, {case.description}: {case.refused}"


def _rejections(rejected: list[tuple[Case, Judgement]]) -> Iterator[str]:
    yield "\nValid instances that an enforced schema does not accept:\n"
    for case, one in rejected:
        reason = explain_rejection(case, one) or "UNEXPLAINED"
        yield f"- {case.file}, {case.description}, {one.description}: {one.instance!r}: {reason}"


if __name__ == "__main__":
    sys.exit(main())
