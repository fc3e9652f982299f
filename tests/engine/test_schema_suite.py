"""The official JSON Schema test suite: `python -m tests.schema_suite.report` prints the same as a table."""

from pathlib import Path

import pytest

from daemon.engine.tokenizer import load_tokenizer
from tests.schema_suite.report import explain_rejection
from tests.schema_suite.suite import Case, run_suite
from tests.support.scripted_model import write_scripted_model

MUST_BE_ENFORCED = {"type", "properties", "required", "items", "prefixItems", "minLength", "maximum", "pattern"}


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> list[Case]:
    """All cases; the trial of each grammar in a process of its own is left out, since none of these is hostile."""
    tokenizer = load_tokenizer(write_scripted_model(tmp_path_factory.mktemp("model") / Path("m"), ["x"]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("daemon.engine.constrain.try_out", lambda _kind, _text: None)
        return list(run_suite(tokenizer, tokenizer.vocab_size))


def test_no_enforced_schema_accepts_an_invalid_instance(cases: list[Case]) -> None:
    """Guards against keywords that are silently ignored."""
    wrong = [
        (case.file, case.description, one.instance)
        for case in cases
        for one in case.judgements
        if not one.valid and one.accepted
    ]
    assert wrong == []


def test_enforced_schemas_accept_the_valid_instances_in_canonical_form(cases: list[Case]) -> None:
    """Guards against a grammar that is stricter than the schema without a documented reason."""
    unexplained = [
        (case.file, case.description, one.instance)
        for case in cases
        for one in case.judgements
        if one.valid and not one.accepted and explain_rejection(case, one) is None
    ]
    assert unexplained == []


def test_the_everyday_keywords_are_enforced(cases: list[Case]) -> None:
    """Guards against a refusal of all, which would pass the other two tests."""
    refused = [case for case in cases if case.refused is not None and case.file in MUST_BE_ENFORCED]
    assert [(case.file, case.description) for case in refused] == []
    assert sum(case.refused is None for case in cases) >= 180


def test_every_refusal_says_why(cases: list[Case]) -> None:
    """Guards the reasons: a sentence that names more than the fact."""
    assert all(len(case.refused.partition(": ")[2]) > 5 for case in cases if case.refused is not None)
