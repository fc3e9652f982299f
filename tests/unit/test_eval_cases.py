"""The cases of `leveret eval`: read strictly, turned into requests, judged."""

import json
from pathlib import Path
from typing import Any

import pytest

from daemon.evaluation.cases import Case, CasesError, Expectation, read_cases
from daemon.evaluation.inputs import read_before, read_template
from daemon.evaluation.requests import RunOptions, body_of, with_labels
from daemon.evaluation.running import make_plan
from daemon.evaluation.scoring import same_json, score

TICKETS = Path(__file__).parents[2] / "deploy" / "examples" / "tickets"


def _case(**fields: Any) -> Case:
    return Case.model_validate({"id": "c", "text": "hi"} | fields)


def _file(directory: Path, *lines: object) -> Path:
    path = directory / "cases.jsonl"
    path.write_text("".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines), "utf-8")
    return path


# -- reading ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{", "expected valid JSON"),
        ("[1]", "expected a JSON object"),
        ({"text": "x"}, "expect: missing"),
        ({"text": "x", "expect": {}}, "exactly one of label, fields, regex, contains"),
        ({"text": "x", "expect": {"label": "a", "regex": "b"}}, "exactly one of label, fields, regex, contains"),
        ({"text": "x", "expect": {"label": 5}}, "expect.label: got 5, expected a string"),
        ({"text": "x", "expect": {"regex": "("}}, "a regular expression"),
        ({"text": "x", "expect": {"fields": {}}}, "expect.fields"),
        ({"text": "x", "expect": {"contains": []}}, "expect.contains"),
        ({"expect": {"label": "a"}}, "exactly one of text, messages"),
        (
            {"text": "x", "messages": [{"role": "user", "content": "y"}], "expect": {"label": "a"}},
            "exactly one of text",
        ),
        ({"messages": [{"role": "robot", "content": "y"}], "expect": {"label": "a"}}, "messages[0].role"),
        ({"text": "x", "expect": {"label": "a"}, "lable": "b"}, "lable: got an unknown field"),
        ({"text": "x", "expect": {"label": "a"}, "request": {"stream": True}}, "request.stream"),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, line: object, words: str) -> None:
    """Guards against a case that is silently left out or read otherwise: file, line, field and value are told."""
    good = {"text": "x", "expect": {"label": "a"}}
    with pytest.raises(CasesError) as caught:
        read_cases(_file(tmp_path, good, line))
    assert "cases.jsonl, line 2: " in str(caught.value)
    assert words in str(caught.value)


def test_ids(tmp_path: Path) -> None:
    """Guards against two cases under one name; a case without an id is named by its line, empty lines counted."""
    one = {"text": "x", "expect": {"label": "a"}}
    assert [case.id for case in read_cases(_file(tmp_path, one, "", {"id": "named"} | one))] == ["line-1", "named"]
    with pytest.raises(CasesError, match=r"line 3: id: got \"a\", which line 1 has already"):
        read_cases(_file(tmp_path, {"id": "a"} | one, one, {"id": "a"} | one))


@pytest.mark.parametrize("content", ["", "\n\n"])
def test_a_file_without_cases(tmp_path: Path, content: str) -> None:
    """Guards against an empty report over nothing."""
    path = tmp_path / "cases.jsonl"
    path.write_text(content)
    with pytest.raises(CasesError, match="holds no case"):
        read_cases(path)
    with pytest.raises(CasesError, match="cannot be read"):
        read_cases(tmp_path / "absent.jsonl")


def test_a_changed_case_is_another_one() -> None:
    """Guards against an old answer that counts for a case whose text or expectation was put right."""
    expect = {"label": "a"}
    digests = {
        _case(expect=expect).digest,
        _case(expect={"label": "b"}).digest,
        _case(expect=expect, text="ho").digest,
        _case(expect=expect, request={"top_k": 1}).digest,
    }
    assert len(digests) == 4
    assert _case(expect=expect).digest in digests


# -- requests ---------------------------------------------------------------------------------------------------------


def test_requests_for_each_expectation() -> None:
    """Guards the form that is asked for: a choice, a schema, any object, or free text."""
    options = RunOptions(labels=("a", "b"))
    user = [{"role": "user", "content": "hi"}]
    assert body_of(_case(expect={"label": "a"}), options) == {
        "messages": user,
        "temperature": 0.0,
        "max_new_tokens": 256,
        "structured_outputs": {"choice": ["a", "b"]},
    }
    fields = _case(expect={"fields": {"n": 1}})
    assert body_of(fields, options)["response_format"] == {"type": "json_object"}
    with_schema = body_of(fields, RunOptions(json_schema={"type": "object"}))
    assert with_schema["response_format"]["json_schema"] == {"name": "answer", "schema": {"type": "object"}}
    free = body_of(_case(expect={"regex": "x"}), RunOptions(seed=7, timeout=5.0, model="m"))
    assert free.keys() == {"messages", "temperature", "max_new_tokens", "seed", "timeout", "model"}


def test_a_case_knows_best() -> None:
    """Guards the order: what a case says about its own request wins over the options of the run."""
    own = {"max_tokens": 5, "temperature": 1.0, "structured_outputs": {"choice": ["x", "y"]}}
    body = body_of(_case(expect={"label": "x"}, request=own), RunOptions(labels=("a", "b")))
    assert body == {"messages": [{"role": "user", "content": "hi"}], **own}


def test_messages_before_the_case(tmp_path: Path) -> None:
    """Guards the order of system message, examples and case, and a system file's last line end."""
    (tmp_path / "system.txt").write_text("Sort.\n")
    turns = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]
    (tmp_path / "turns.json").write_text(json.dumps(turns))
    before = read_before(tmp_path / "system.txt", tmp_path / "turns.json")
    body = body_of(_case(expect={"regex": "x"}), RunOptions(before=before))
    assert body["messages"] == [{"role": "system", "content": "Sort."}, *turns, {"role": "user", "content": "hi"}]


def test_a_template_is_put_around_user_messages(tmp_path: Path) -> None:
    """Guards the template: every user message, examples too, braces in them untouched; none without a place for it."""
    (tmp_path / "t.txt").write_text("Message: {text}\nTopic:\n")
    before = ({"role": "user", "content": "{text}"}, {"role": "assistant", "content": "a"})
    options = RunOptions(before=before, template=read_template(tmp_path / "t.txt"))
    contents = [turn["content"] for turn in body_of(_case(expect={"regex": "x"}), options)["messages"]]
    assert contents == ["Message: {text}\nTopic:", "a", "Message: hi\nTopic:"]
    (tmp_path / "t.txt").write_text("Topic:")
    with pytest.raises(CasesError, match=r"has no \{text\}"):
        read_template(tmp_path / "t.txt")


@pytest.mark.parametrize(("content", "words"), [("{", "no JSON"), ("{}", "a list"), ('[{"role": "user"}]', "content")])
def test_a_wrong_file_of_messages(tmp_path: Path, content: str, words: str) -> None:
    """Guards against a prompt that is not sent as it was meant."""
    (tmp_path / "turns.json").write_text(content)
    with pytest.raises(CasesError, match=words):
        read_before(None, tmp_path / "turns.json")


def test_labels_come_from_the_cases() -> None:
    """Guards the choice: the labels in the order of the cases, or those given; each expected one must be among them."""
    cases = [_case(id=label, expect={"label": label}) for label in "bab"]
    assert with_labels(RunOptions(), cases).labels == ("b", "a")
    assert with_labels(RunOptions(labels=("a", "b", "c")), cases).labels == ("a", "b", "c")
    with pytest.raises(CasesError, match="case 'b' expects 'b', which is not among a, c"):
        with_labels(RunOptions(labels=("a", "c")), cases)
    with pytest.raises(CasesError, match="name all labels with --choice"):
        with_labels(RunOptions(), cases[1:2])


def test_a_request_that_the_daemon_would_refuse(tmp_path: Path) -> None:
    """Guards against a run whose every answer is the same error: all requests are checked before the first is sent."""
    cases = _file(tmp_path, {"text": "x", "expect": {"regex": "a"}, "request": {"top_k": -1}})
    with pytest.raises(CasesError, match=r"case 'line-1': top_k: got -1, expected at least 0"):
        make_plan(cases, RunOptions(), None, 1)
    with pytest.raises(CasesError, match="temperature: got 3"):
        make_plan(_file(tmp_path, {"text": "x", "expect": {"regex": "a"}}), RunOptions(temperature=3.0), None, 1)


def test_options_have_digests_of_their_own() -> None:
    """Guards against answers to one prompt that count for another."""
    changed = [RunOptions(), RunOptions(labels=("a",)), RunOptions(seed=1), RunOptions(before=({"role": "user"},))]
    assert len({options.digest for options in changed}) == 4
    assert RunOptions().digest == RunOptions().digest


# -- verdicts ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expect", "answer", "right"),
    [
        ({"label": "a"}, "a", True),
        ({"label": "a"}, "A", False),
        ({"regex": "^\\d+$"}, "12", True),
        ({"regex": "^\\d+$"}, "12 apples", False),
        ({"contains": "paris"}, "It is PARIS.", True),
        ({"contains": ["paris", "rome"]}, "Paris", False),
        ({"fields": {"n": 2}}, '{"n": 2.0, "more": 1}', True),
        ({"fields": {"n": 2}}, '{"n": "2"}', False),
        ({"fields": {"n": 1}}, '{"n": true}', False),
        ({"fields": {"n": None}}, '{"n": null}', True),
        ({"fields": {"n": None}}, "{}", False),
        ({"fields": {"n": [1, {"a": "b"}]}}, '{"n": [1.0, {"a": "b"}]}', True),
        ({"label": "a"}, None, False),
        ({"regex": ""}, None, False),
    ],
)
def test_verdicts(expect: dict[str, Any], answer: str | None, right: bool) -> None:  # noqa: FBT001
    """Guards each way of being right, and that an error never is."""
    assert score(Expectation.model_validate(expect), answer).right is right


@pytest.mark.parametrize("answer", ['{"a": 1', "[1]", "a: 1", "", "[" * 100_000, None])
def test_answers_that_are_no_object(answer: str | None) -> None:
    """Guards the valid-JSON rate: cut off, of another type, no JSON, endless nesting."""
    verdict = score(Expectation(fields={"a": 1}), answer)
    assert (verdict.right, verdict.valid_json, dict(verdict.fields)) == (False, False, {"a": False})


def test_json_equality_is_not_pythons() -> None:
    """Guards against true that passes as 1, and lists of other lengths."""
    assert not same_json([1], [1, 2])
    assert not same_json({"a": 0}, {"a": False})
    assert same_json(1, 1.0)


# -- the tickets ------------------------------------------------------------------------------------------------------


def test_the_tickets_are_balanced() -> None:
    """Guards the data set: three languages, five labels, the same number of each; no text twice."""
    cases = read_cases(TICKETS / "labels.jsonl")
    counts = {(case.group, case.expect.label) for case in cases}
    assert len(counts) == 15
    assert len(cases) == len({case.text for case in cases}) == 75
    assert all(sum((case.group, case.expect.label) == pair for case in cases) == 5 for pair in counts)


def test_what_is_to_be_extracted_is_in_the_text() -> None:
    """Guards the extraction task: every value, to the letter, stands in its ticket (one is written as a word)."""
    for case in read_cases(TICKETS / "fields.jsonl"):
        values = [str(value) for name, value in (case.expect.fields or {}).items() if name != "quantity"]
        assert all(value in (case.text or "") for value in values), case.id
