"""Prints the table: `python -m tests.schema_suite.report`. Ends with 1 where a judgement is wrong or unexplained."""

import json
import sys
import tempfile
from collections import Counter
from pathlib import Path

from daemon.engine.tokenizer import load_tokenizer
from tests.schema_suite.suite import Case, Judgement, run_suite
from tests.support.scripted_model import write_scripted_model


def explain_rejection(case: Case, judgement: Judgement) -> str | None:
    """Why a valid instance is not accepted, None where there is no known reason."""
    if "format" in json.dumps(case.schema):
        return "format is enforced; to the draft it is an annotation"
    if any(ord(character) < 0x20 for character in str(judgement.instance)):  # noqa: PLR2004
        return "control characters are written only as \\b \\f \\n \\r \\t"
    return None


def main() -> int:
    """Run the suite and print it as Markdown."""
    with tempfile.TemporaryDirectory() as directory:
        tokenizer = load_tokenizer(write_scripted_model(Path(directory), ["x"]))
        cases = list(run_suite(tokenizer, tokenizer.vocab_size))
    _print_table(cases)
    _print_refused(cases)
    wrong = [(case, one) for case in cases for one in case.judgements if one.accepted and not one.valid]
    rejected = [(case, one) for case in cases for one in case.judgements if one.valid and not one.accepted]
    _print_rejected(rejected)
    for case, one in wrong:
        print(f"WRONG: {case.file}, {case.description}: accepts the invalid {one.instance!r}")
    return 1 if wrong or any(explain_rejection(case, one) is None for case, one in rejected) else 0


def _print_table(cases: list[Case]) -> None:
    enforced, refused = Counter[str](), Counter[str]()
    for case in cases:
        (enforced if case.refused is None else refused)[case.file] += 1
    print("| keyword file | schemas enforced | schemas refused |\n|---|---|---|")
    for file in sorted({case.file for case in cases}):
        print(f"| {file} | {enforced[file]} | {refused[file]} |")
    judged = sum(len(case.judgements) for case in cases)
    print(f"| **all** | {enforced.total()} | {refused.total()} |\n\n{judged} instances were judged.\n")


def _print_refused(cases: list[Case]) -> None:
    print("Refused schemas:\n")
    for case in cases:
        if case.refused is not None:
            print(f"- {case.file}, {case.description}: {case.refused}")


def _print_rejected(rejected: list[tuple[Case, Judgement]]) -> None:
    print("\nValid instances that an enforced schema does not accept:\n")
    for case, one in rejected:
        reason = explain_rejection(case, one) or "UNEXPLAINED"
        print(f"- {case.file}, {case.description}, {one.description}: {one.instance!r}: {reason}")


if __name__ == "__main__":
    sys.exit(main())
