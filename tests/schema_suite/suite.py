"""Runs the suite: which schemas are enforced, which are refused, and whether each test instance is judged rightly.

The instances are tried in canonical form: compact, plain numbers, keys in every order (the grammar knows one order, the
schema's). Source of the data: https://github.com/json-schema-org/JSON-Schema-Test-Suite, tests/draft2020-12.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice, permutations, product
from pathlib import Path
from typing import Any

from daemon.engine.constrain import Grammar, GrammarCompiler
from daemon.engine.tokenizer import Tokenizer
from daemon.engine.types import JsonSchema
from daemon.errors import GenerationFailed, InvalidRequest

DATA = Path(__file__).parent.parent / "data" / "json-schema-test-suite"
_MOST_ORDERS = 5000


@dataclass(frozen=True)
class Judgement:
    """One test instance and how the grammar judged it."""

    description: str
    instance: Any
    valid: bool
    accepted: bool


@dataclass(frozen=True)
class Case:
    """One schema of the suite. `refused` is the reason, or None where the schema is enforced."""

    file: str
    description: str
    schema: Any
    refused: str | None
    judgements: list[Judgement] = field(default_factory=list)


def run_suite(tokenizer: Tokenizer, vocab_size: int) -> Iterator[Case]:
    """All cases of the suite, in order."""
    compiler = GrammarCompiler(tokenizer, vocab_size)
    for path in sorted(DATA.glob("*.json")):
        for case in json.loads(path.read_text("utf-8")):
            yield _run(compiler, tokenizer, path.stem, case)


def _run(compiler: GrammarCompiler, tokenizer: Tokenizer, file: str, case: Mapping[str, Any]) -> Case:
    constraint = JsonSchema(case["schema"])
    try:
        compiler.grammar(constraint)
    except InvalidRequest as error:
        return Case(file, case["description"], case["schema"], str(error))
    judgements = [
        Judgement(
            test["description"], test["data"], test["valid"], _accepts(compiler, tokenizer, constraint, test["data"])
        )
        for test in case["tests"]
    ]
    return Case(file, case["description"], case["schema"], None, judgements)


def _accepts(compiler: GrammarCompiler, tokenizer: Tokenizer, constraint: JsonSchema, instance: object) -> bool:
    texts = islice(canonical_texts(instance), _MOST_ORDERS)
    return any(accepts(compiler.grammar(constraint), tokenizer, text) for text in texts)


def accepts(grammar: Grammar, tokenizer: Tokenizer, text: str) -> bool:
    """True where `text` as a whole follows the grammar."""
    try:
        for token in tokenizer.encode_continuation(text):
            grammar.accept(token)
    except GenerationFailed:
        return False
    return grammar.complete or any(grammar.allowed()[end] for end in tokenizer.end_ids)


def canonical_texts(value: object) -> Iterator[str]:
    """`value` as compact JSON with plain numbers, once for every order of its keys."""
    if isinstance(value, dict):
        members = [
            [f"{json.dumps(key, ensure_ascii=False)}:{text}" for text in canonical_texts(part)]
            for key, part in value.items()
        ]
        for order in permutations(members):
            yield from ("{" + ",".join(chosen) + "}" for chosen in product(*order))
    elif isinstance(value, list):
        yield from (
            "[" + ",".join(chosen) + "]" for chosen in product(*(list(canonical_texts(part)) for part in value))
        )
    elif isinstance(value, float) and value.is_integer():
        yield str(int(value))
    else:
        yield json.dumps(value, ensure_ascii=False)
