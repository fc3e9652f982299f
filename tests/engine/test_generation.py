"""The whole engine on the scripted model: what comes out, token by token and at the end."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from daemon.engine.engine import Engine
from daemon.engine.types import Message, Result, Task, TextEvent
from daemon.errors import ContextLengthExceeded, GenerationFailed, InvalidRequest
from tests.support.fake_engine import FaultyModel, WrappedModel, load_float32, run
from tests.support.scripted_model import SYSTEM, Piece, write_scripted_model

ASK = (Message("user", "q"),)
PROMPT_TOKENS = len("q") + 3
FAMILY = "👨‍👩‍👧"
Make = Callable[..., Engine]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Makes engines of scripted models: `make(chain, default=…, context_tokens=…, template=…)`."""

    def engine(chain: list[Piece], **options: object) -> Engine:
        return load_float32(write_scripted_model(tmp_path / "model", chain, **options))  # type: ignore[arg-type] # passed on

    return engine


def ask(engine: Engine, **fields: object) -> tuple[Result, list[TextEvent]]:
    return run(engine, Task(ASK, **{"temperature": 0.0, "max_new_tokens": 100, **fields}))  # type: ignore[arg-type] # passed on


def split(text: str, width: int) -> list[Piece]:
    """The text's bytes in pieces of `width`, made distinct by growing where one would repeat."""
    data, pieces = text.encode(), list[bytes]()
    start = 0
    while start < len(data):
        end = start + width
        while data[start:end] in pieces:
            end += 1
        pieces.append(data[start:end])
        start = end
    return list(pieces)


TEXTS = [
    "é漢😀",
    FAMILY,
    "สวัสดีชาวโลก",
    "a\ufffdb",
    "  lead and trail \n",
    "\ufeff\x00!",
    "漢字かな交じり文",
    '{"k":[1,"é"]}',
]


@pytest.mark.parametrize("width", [1, 2, 3, 5])
@pytest.mark.parametrize("text", TEXTS)
def test_chunks_joined_are_the_final_text_is_the_decoded_tokens(text: str, width: int, make: Make) -> None:
    """Guards against characters that arrive as U+FFFD or vanish, whatever the tokens split."""
    pieces = split(text, width)
    result, events = ask(make(pieces))
    assert result.text == "".join(event.text for event in events) == text
    assert sum(len(event.token_ids) for event in events) == len(pieces)
    assert result.finish_reason == "stop"
    assert (result.usage.prompt_tokens, result.usage.completion_tokens) == (PROMPT_TOKENS, len(pieces) + 1)


def test_bytes_that_are_no_text_become_replacement_characters(make: Make) -> None:
    """Guards against strict decoding in the middle of a stream."""
    data = [b"a", b"\xff", b"\xe6\xbc", b"b", b"\xf0\x9f\x98"]
    result, events = ask(make(list(data)))
    assert result.text == "".join(e.text for e in events) == b"".join(data).decode("utf-8", errors="replace")


def test_text_without_spaces_keeps_flowing(make: Make) -> None:
    """Guards against chunks that wait for a word to end: each token's text comes with its own event."""
    pieces: list[Piece] = [f"x{i:03d}" for i in range(60)]
    _, events = ask(make(pieces))
    assert [event.text for event in events] == pieces


def test_special_tokens_in_an_answer_are_no_text(make: Make) -> None:
    """Guards against turn markers in the text when a model emits one that ends nothing."""
    result, _ = ask(make(["a", SYSTEM, "b"]))
    assert result.text == "ab"
    assert result.usage.completion_tokens == 4


@pytest.mark.parametrize(
    ("stops", "text"),
    [
        (("END",), "one "),
        (("ne",), "o"),
        (("e EN", "one END t"), ""),
        (("two", "D"), "one EN"),
        (("zzz", "two!"), "one END two"),
        (("one",), ""),
    ],
    ids=["over tokens", "inside a token", "overlapping", "earliest", "unfinished", "at once"],
)
def test_stop_strings_end_the_text_before_them(stops: tuple[str, ...], text: str, make: Make) -> None:
    """Guards against leaks, swallowed text and text after the stop, in events and in the result alike."""
    result, events = ask(make(["one", " E", "ND", " two"]), stop=stops)
    assert result.text == "".join(event.text for event in events) == text
    assert result.finish_reason == "stop"


def test_a_stop_ends_the_generation_at_once(make: Make) -> None:
    """Guards against tokens that are generated and paid for after the end."""
    result, _ = ask(make(["a", "b", "c", "d", "e"]), stop=("c",))
    assert result.usage.completion_tokens == 3


def test_the_limit_ends_the_answer_and_says_so(make: Make) -> None:
    """Guards `length`, with the unfinished stop string and the unfinished character shown."""
    result, events = ask(make(["a", "EN", b"\xf0\x9f", b"\x98\x80"]), max_new_tokens=3, stop=("END",))
    assert result.text == "".join(event.text for event in events) == "aEN\ufffd"
    assert (result.finish_reason, result.usage.completion_tokens) == ("length", 3)


def test_the_end_token_counts(make: Make) -> None:
    """Guards the count: an answer that needs its last token for the end is not cut off."""
    engine = make(["a", "b"])
    assert ask(engine, max_new_tokens=3)[0].finish_reason == "stop"
    assert ask(engine, max_new_tokens=2)[0].finish_reason == "length"


def test_a_limit_of_one_gives_one_token(make: Make) -> None:
    """Guards the smallest answer."""
    result, _ = ask(make(["a", "b"]), max_new_tokens=1)
    assert (result.text, result.finish_reason) == ("a", "length")


def test_every_end_token_of_the_model_ends_the_answer(make: Make, tmp_path: Path) -> None:
    """Guards against a second end token that is taken for text."""
    make(["a", SYSTEM, "b"])
    (tmp_path / "model" / "generation_config.json").write_text('{"eos_token_id": [0, 1]}')
    result, _ = ask(load_float32(tmp_path / "model"))
    assert (result.text, result.usage.completion_tokens) == ("a", 2)


@pytest.mark.parametrize(("room", "fits"), [(-1, True), (0, True), (1, False), (640, False)])
def test_prompt_and_answer_must_fit_the_context(room: int, fits: bool, make: Make) -> None:  # noqa: FBT001 - a case
    """Guards against a prompt that is cut silently or fails in the middle; both numbers are named, before any work."""
    engine = make(["a"], context_tokens=64)
    wanted = 64 - PROMPT_TOKENS + room
    task = Task(ASK, max_new_tokens=wanted, temperature=0.0)
    if fits:
        engine.check(task)
        assert run(engine, task)[0].text == "a"
        return
    for attempt in (engine.check, lambda task: run(engine, task)):
        with pytest.raises(
            ContextLengthExceeded, match=rf"\b{PROMPT_TOKENS} tokens.*\b{wanted}\b.*\b64 tokens"
        ) as caught:
            attempt(task)
        assert caught.value.param == "messages"
    assert ask(engine, max_new_tokens=10)[0].text == "a"


def test_a_prompt_alone_may_be_too_long(make: Make) -> None:
    """Guards against work on a prompt ten times the context."""
    engine = make(["a"], context_tokens=64)
    with pytest.raises(ContextLengthExceeded):
        engine.check(Task((Message("user", "x" * 640),), max_new_tokens=1))


def test_long_prompts_are_prefilled_in_pieces_with_a_stop_check_before_each(make: Make) -> None:
    """Guards cancel and deadline during the prefill."""
    engine = make(["a"])
    task = Task((Message("user", "x" * 400),), max_new_tokens=5, temperature=0.0)
    asked = 0

    def stop() -> bool:
        nonlocal asked
        asked += 1
        return asked == 3

    result = engine.generate(task, stop, lambda _: None)
    assert engine.model.piece_tokens * 2 < 400
    assert (result.finish_reason, result.text, result.usage.completion_tokens, asked) == ("interrupted", "", 0, 3)
    assert run(engine, task)[0].text == "a"


def test_nothing_is_computed_for_a_request_that_is_cancelled_before_it_starts(make: Make) -> None:
    """Guards against work for nobody."""
    engine = make(["a"])
    broken = Engine(FaultyModel(engine.model, fail_at=0), engine.tokenizer)
    assert broken.generate(Task(ASK), lambda: True, lambda _: None).finish_reason == "interrupted"


def test_an_interruption_keeps_the_text_so_far(make: Make) -> None:
    """Guards the partial text of a cancelled request: all that was certain, and what was held back."""
    events: list[TextEvent] = []
    task = Task(ASK, temperature=0.0, stop=("cd",))
    result = make(["a", "b", "c", "x"]).generate(task, lambda: len(events) == 3, events.append)
    assert result.text == "".join(event.text for event in events) == "abc"
    assert (result.finish_reason, result.usage.completion_tokens) == ("interrupted", 3)


@pytest.mark.parametrize("fail_at", [0, 3])
def test_a_failing_model_fails_one_request_only(fail_at: int, make: Make) -> None:
    """Guards against state that a failure leaves behind for the next request."""
    engine = make(["a", "b", "c", "d", "e"])
    broken = Engine(FaultyModel(engine.model, fail_at=fail_at), engine.tokenizer)
    events: list[TextEvent] = []
    with pytest.raises(RuntimeError, match="fake model failed"):
        broken.generate(Task(ASK, temperature=0.0), lambda: False, events.append)
    assert len(events) == fail_at
    assert ask(broken)[0].text == "abcde"


def test_a_model_that_computes_nonsense_fails_the_request(make: Make) -> None:
    """Guards against text from NaN logits."""

    class NanModel(WrappedModel):
        def extend(self, *args: object, **options: object) -> np.ndarray:
            """As the port's, but the logits are NaN."""
            return super().extend(*args, **options) * np.float32(np.nan)  # type: ignore[arg-type] # passed on

    engine = make(["a"])
    with pytest.raises(GenerationFailed, match="no numbers"):
        ask(Engine(NanModel(engine.model), engine.tokenizer))


def test_checked_work_is_not_done_again(make: Make) -> None:
    """Guards the hand-over from `check` to `generate`: what was checked is not mixed up with another task."""
    engine = make(["a"])
    first, second = Task(ASK, temperature=0.0), Task((Message("user", "longer"),), temperature=0.0)
    engine.check(first)
    assert run(engine, second)[0].usage.prompt_tokens == PROMPT_TOKENS + 5
    engine.check(second)
    assert run(engine, second)[0].usage.prompt_tokens == PROMPT_TOKENS + 5


def test_timings_are_those_of_the_run(make: Make) -> None:
    """Guards against negative or empty timings."""
    timings = ask(make(["a", "b"]))[0].timings
    assert timings.prefill_seconds > 0
    assert timings.decode_seconds > 0
    assert timings.tokens_per_second == pytest.approx(3 / timings.decode_seconds)


def test_logprobs_come_with_each_token_while_streaming_and_at_the_end(make: Make) -> None:
    """Guards alignment: every event has one entry per token, the result has them all, the end token has none."""
    result, events = ask(make(["Hi", b"\xf0\x9f", b"\x98\x80"]), logprobs=True, top_logprobs=2)
    assert [len(event.logprobs) for event in events] == [len(event.token_ids) for event in events]
    assert [entry for event in events for entry in event.logprobs] == list(result.logprobs)
    assert [(entry.token, entry.bytes) for entry in result.logprobs] == [
        ("Hi", b"Hi"),
        ("\ufffd", b"\xf0\x9f"),
        ("\ufffd\ufffd", b"\x98\x80"),
    ]
    assert all(entry.top[0].logprob == entry.logprob > entry.top[1].logprob for entry in result.logprobs)


def test_logprobs_ignore_temperature_and_truncation(make: Make) -> None:
    """Guards the definition: from the raw logits."""
    engine = make(["a", "b"])
    greedy = ask(engine, logprobs=True)[0].logprobs
    warm = ask(engine, logprobs=True, temperature=0.5, top_k=1)[0].logprobs
    assert greedy == warm
    size = engine.model.vocab_size
    assert greedy[0].logprob == pytest.approx(20 - np.log(np.exp(20) + size - 1), abs=1e-5)


def test_without_logprobs_there_are_none(make: Make) -> None:
    """Guards against work and bytes that nobody asked for."""
    result, events = ask(make(["a"]))
    assert result.logprobs == ()
    assert all(event.logprobs == () for event in events)


def test_a_model_without_an_end_runs_to_the_limit(make: Make) -> None:
    """Guards an answer that repeats for ever."""
    result, _ = ask(make(["a", "b"], default="b"), max_new_tokens=20)
    assert (result.text, result.finish_reason) == ("a" + "b" * 19, "length")


def test_the_prefill_is_not_repeated(make: Make) -> None:
    """Guards the content of a continued answer: only what is new."""
    engine = make(["x", "y"])
    result, _ = run(engine, Task((*ASK, Message("assistant", "x")), temperature=0.0))
    assert (result.text, result.usage.prompt_tokens) == ("y", PROMPT_TOKENS + 1)


def test_messages_that_the_template_refuses_cost_nothing(make: Make) -> None:
    """Guards that refusals come from `check` too, before any work."""
    engine = make(["a"], template="{{ raise_exception('no') }}")
    with pytest.raises(InvalidRequest, match="no"):
        engine.check(Task(ASK))
