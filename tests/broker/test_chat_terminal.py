"""What `leveret chat` shows on a terminal beside the text: counts and times, probabilities, a cut; what it hides."""

import re
from pathlib import Path

from aio_pika.abc import AbstractIncomingMessage

from schemas.replies import Timings, usage
from tests.broker.conftest import Chat
from tests.support.chat_terminal import PROMPT
from tests.support.pseudo_terminal import RETURN
from tests.support.responder import HEAD, Responder

TIMINGS = Timings(queue_seconds=0.1, prefill_seconds=0.3, decode_seconds=1.2, tokens_per_second=6.66)
SUMMARY = re.compile(
    r"^tokens: 8 at 6\.7/s · first after \d+\.\d\d s, all after \d+\.\d\d s · prompt: 27, cached: 12 · scripted$",
    re.MULTILINE,
)


async def finish(
    responder: Responder,
    request: AbstractIncomingMessage,
    text: str,
    *,
    cut: bool = False,
    label_probs: dict[str, float] | None = None,
) -> None:
    """Answer with counts and times that can be told from each other."""
    body = HEAD.completion(
        text,
        finish_reason="length" if cut else "stop",
        usage=usage(27, 8, 12),
        timings=TIMINGS,
        label_probs=label_probs,
    )
    await responder.reply(request, body, seq=99)


async def test_counts_and_times(chat: Chat, responder: Responder) -> None:
    """One line under the answer: tokens, speed, waiting times, prompt and cache, model; no colours with NO_COLOR."""
    async with chat("hi") as terminal:
        await finish(responder, await responder.request(), "Hello")
        assert await terminal.status() == 0
        await terminal.shows("· scripted\n")
    assert terminal.text.startswith("Hello\ntokens: ")
    assert SUMMARY.search(terminal.text)
    assert "\x1b[" not in terminal.screen


async def test_colours(chat: Chat, responder: Responder) -> None:
    """On a terminal with colours the line and the prompt are faint, the answer is not."""
    async with chat(NO_COLOR="") as terminal:
        await terminal.shows(PROMPT)
        terminal.type("hi" + RETURN)
        await finish(responder, await responder.request(), "Hello")
        await terminal.shows("· scripted")
        await terminal.shows(PROMPT)
    assert "\x1b[2mtokens: 8" in terminal.screen
    assert "\x1b[2m> \x1b[0m" in terminal.screen
    assert "\rHello\r\n\x1b[2mtokens" in terminal.screen


async def test_output_in_a_file(chat: Chat, responder: Responder, tmp_path: Path) -> None:
    """A file gets the answer byte for byte; the terminal still gets the line."""
    async with chat("hi", redirect=">out") as terminal:
        await finish(responder, await responder.request(), "one\x1b[2m\n\ntwo\r\n")
        assert await terminal.status() == 0
        await terminal.shows("· scripted\n")
    assert (tmp_path / "out").read_bytes() == b"one\x1b[2m\n\ntwo\r\n"
    assert SUMMARY.fullmatch(terminal.text.strip())


async def test_errors_in_a_file(chat: Chat, responder: Responder, tmp_path: Path) -> None:
    """Where stderr is no terminal there is no line, nor where each reply is printed as JSON; a cut is always said."""
    async with chat("hi", redirect="2>errors") as terminal:
        await finish(responder, await responder.request(), "Hello", cut=True)
        assert await terminal.status() == 0
    cut = "leveret chat: the answer was cut at its most tokens; --max-new-tokens sets them\n"
    assert (tmp_path / "errors").read_text() == cut
    async with chat("hi", "--raw") as terminal:
        await finish(responder, await responder.request(), "Hello")
        assert await terminal.status() == 0
        await terminal.shows("}\n")
    assert "tokens: " not in terminal.text


async def test_label_probabilities(chat: Chat, responder: Responder) -> None:
    """A line for each label, the most probable first; beyond ten the others are summed up."""
    labels = {f"l{number}": 0.01 for number in range(11)} | {"delivery": 0.64, "billing": 0.25}
    async with chat("hi", "--choice", ",".join(labels)) as terminal:
        await finish(responder, await responder.request(), "delivery", label_probs=labels)
        await terminal.shows("· scripted\n")
    lines = terminal.text.splitlines()
    assert lines[:4] == ["delivery", " 64.00%  delivery", " 25.00%  billing", "  1.00%  l0"]
    assert lines[11] == "  3.00%  3 other labels together"
    assert SUMMARY.match(lines[12])


async def test_an_answer_cannot_steer_the_terminal(chat: Chat, responder: Responder) -> None:
    """Guards against escape sequences in a model's text, such as one that writes the window's title."""
    async with chat("hi") as terminal:
        request = await responder.request()
        await responder.chunk(request, "a\x1b]0;title\x07", seq=0)
        await finish(responder, request, "a\x1b]0;title\x07b\tc\x9b1m\nd")
        await terminal.shows("· scripted\n")
    assert terminal.screen.startswith("a␛]0;title␇b\tc�1m\r\nd\r\n")


async def test_a_conversation_needs_a_terminal_for_output(chat: Chat, tmp_path: Path) -> None:
    """Without TEXT and with the output in a file: a usage error that says what is missing, no silent waiting."""
    async with chat(redirect=">out") as terminal:
        assert await terminal.status() == 2
        await terminal.shows("a conversation needs a terminal for its output too")
    assert (tmp_path / "out").read_bytes() == b""
