"""`leveret chat` as a conversation in a real pseudo-terminal, on a real broker, against a scripted responder."""

import os
from pathlib import Path
from typing import Any

import pytest
from aio_pika.abc import AbstractIncomingMessage
from private_broker import PrivateBroker

from schemas.replies import chat_error
from tests.broker.conftest import Chat
from tests.support.chat_terminal import PROMPT, open_chat
from tests.support.pseudo_terminal import CONTROL_C, CONTROL_D, RETURN, UP, PseudoTerminal
from tests.support.responder import Responder, fields
from tests.support.tcp_proxy import TcpProxy
from tests.support.wait import wait_until


def user(content: str) -> dict[str, str]:
    return {"role": "user", "content": content}


def assistant(content: str) -> dict[str, str]:
    return {"role": "assistant", "content": content}


def messages(request: AbstractIncomingMessage) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = fields(request)["messages"]
    return found


async def answer(terminal: PseudoTerminal, responder: Responder, text: str) -> list[dict[str, Any]]:
    """Answer the next request and wait for the prompt after it; the request's messages."""
    request = await responder.request()
    await responder.finish(request, text)
    await terminal.shows(f"{text}\n")
    await terminal.shows(PROMPT)
    return messages(request)


async def interrupted(terminal: PseudoTerminal, responder: Responder) -> AbstractIncomingMessage:
    """Ask, and press Ctrl-C in the middle of the answer, which cancels it on the bus; the request."""
    await terminal.shows(PROMPT)
    terminal.type("long" + RETURN)
    request = await responder.request()
    await responder.chunk(request, "so far", seq=0)
    await terminal.shows("so far")
    terminal.type(CONTROL_C)
    assert await responder.cancelled_id() == request.correlation_id
    return request


async def test_the_history_goes_along(chat: Chat, responder: Responder) -> None:
    """Each request carries the turns before it, both sides; the options hold for every one; Ctrl-D leaves with 0."""
    async with chat("--system", "Be brief.", "--temperature", "0", "--seed", "7") as terminal:
        await terminal.shows(PROMPT)
        terminal.type("My name is Ada." + RETURN)
        request = await responder.request()
        system = {"role": "system", "content": "Be brief."}
        assert fields(request) == {
            "messages": [system, user("My name is Ada.")],
            "temperature": 0,
            "seed": 7,
            "stream": True,
        }
        await responder.chunk(request, "Hel", seq=0)
        await terminal.shows("Hel")
        await responder.finish(request, "Hello Ada")
        await terminal.shows("lo Ada\n")
        await terminal.shows(PROMPT)
        terminal.type("Who am I?" + RETURN)
        second = await responder.request()
        await responder.finish(second, "Ada")
        await terminal.shows(PROMPT)
        history = [system, user("My name is Ada."), assistant("Hello Ada"), user("Who am I?")]
        assert fields(second) == {"messages": history, "temperature": 0, "seed": 7, "stream": True}
        terminal.type(CONTROL_D)
        assert await terminal.status() == 0
    assert "\x1b[2m" not in terminal.screen, "NO_COLOR is set"


async def test_new_forgets_the_conversation(chat: Chat, responder: Responder) -> None:
    """After /new the next request has no turn from before; /help names the commands; /exit leaves with 0."""
    async with chat() as terminal:
        await terminal.shows(PROMPT)
        terminal.type("one" + RETURN)
        await answer(terminal, responder, "eins")
        terminal.type("/new" + RETURN)
        await terminal.shows("a new conversation")
        await terminal.shows(PROMPT)
        terminal.type("two" + RETURN)
        assert await answer(terminal, responder, "zwei") == [user("two")]
        terminal.type("/help" + RETURN)
        await terminal.shows("/exit")
        await terminal.shows(PROMPT)
        terminal.type("/exit " + RETURN)
        assert await terminal.status() == 0


async def test_what_is_a_command(chat: Chat, responder: Responder) -> None:
    """A word with a slash that is no command is told, never sent; text that only begins with a slash is a message."""
    async with chat() as terminal:
        await terminal.shows(PROMPT)
        terminal.type("/nwe" + RETURN)
        await terminal.shows("leveret chat: there is no command /nwe; /help shows those that there are")
        await terminal.shows(PROMPT)
        terminal.type(RETURN + "  " + RETURN)
        terminal.type("/etc is what?" + RETURN)
        assert await answer(terminal, responder, "A directory.") == [user("/etc is what?")]


async def test_interrupt_cancels_and_gives_the_prompt_back(chat: Chat, responder: Responder) -> None:
    """Ctrl-C during an answer cancels it on the bus; the conversation goes on without that turn."""
    async with chat() as terminal:
        request = await interrupted(terminal, responder)
        await responder.reply(request, chat_error("cancelled", "cancelled", param=None, retryable=False), seq=1)
        await terminal.shows("leveret chat: cancelled: cancelled\n")
        await terminal.shows("the conversation is as it was before this message")
        await terminal.shows(PROMPT)
        terminal.type("short" + RETURN)
        assert await answer(terminal, responder, "ok") == [user("short")]


async def test_a_second_interrupt_leaves(chat: Chat, responder: Responder) -> None:
    """Ctrl-C twice leaves although nobody confirms the cancel, with the status of an interrupt."""
    async with chat() as terminal:
        await interrupted(terminal, responder)
        terminal.type(CONTROL_C)
        assert await terminal.status() == 130
    assert "Traceback" not in terminal.text


@pytest.mark.parametrize("before", ["pass", "sys.modules['readline'] = None"], ids=["readline", "none"])
async def test_interrupt_at_the_prompt_clears_the_line(chat: Chat, responder: Responder, before: str) -> None:
    """Ctrl-C at the prompt drops what was typed and nothing else, each time; without readline the terminal does it."""
    async with chat(before=before) as terminal:
        await terminal.shows(PROMPT)
        for history in ([], [user("right"), assistant("ok")]):
            terminal.type("wrong")
            await terminal.shows("wrong")
            terminal.type(CONTROL_C)
            await terminal.shows("^C")
            terminal.type("right" + RETURN)
            assert await answer(terminal, responder, "ok") == [*history, user("right")]
        terminal.type(CONTROL_D)
        assert await terminal.status() == 0


async def test_a_marked_paste_is_one_message(chat: Chat, responder: Responder) -> None:
    """Lines pasted between a terminal's marks wait for Return and are one message; the arrow keys bring it back."""
    async with chat() as terminal:
        await terminal.shows(PROMPT)
        terminal.paste("/new\none\n\nGrüße")
        await terminal.shows("Grüße")
        terminal.type("!" + RETURN)
        text = "/new\none\n\nGrüße!"
        assert await answer(terminal, responder, "ok") == [user(text)]
        terminal.type(UP + RETURN)
        assert await answer(terminal, responder, "again") == [user(text), assistant("ok"), user(text)]


@pytest.mark.parametrize("before", ["pass", "sys.modules['readline'] = None"], ids=["readline", "none"])
async def test_an_unmarked_paste_is_one_message(chat: Chat, responder: Responder, before: str) -> None:
    """Lines that arrive at once are one message where the terminal does not mark pastes, or there is no readline."""
    async with chat(before=before) as terminal:
        await terminal.shows(PROMPT)
        terminal.type("one\ntwo\n\nthree\n")
        assert await answer(terminal, responder, "ok") == [user("one\ntwo\n\nthree")]


async def test_lines_between_quotes_are_one_message(chat: Chat, responder: Responder) -> None:
    """Three quotes on a line begin and end a message of several lines; Ctrl-C inside gives it up."""
    async with chat() as terminal:
        await terminal.shows(PROMPT)
        terminal.type('"""' + RETURN)
        await terminal.shows("… ")
        terminal.type("dropped" + CONTROL_C)
        await terminal.shows(PROMPT)
        for line in ('"""', "first", "", "second"):
            terminal.type(line + RETURN)
            await terminal.shows("… ")
        terminal.type('"""' + RETURN)
        assert await answer(terminal, responder, "ok") == [user("first\n\nsecond")]


async def test_bytes_that_are_no_text(chat: Chat, responder: Responder) -> None:
    """A line that is not UTF-8 is told and not sent; the next one is."""
    async with chat() as terminal:
        await terminal.shows(PROMPT)
        terminal.type("\udcff" + RETURN)
        await terminal.shows("leveret chat: the message is not UTF-8")
        await terminal.shows(PROMPT)
        terminal.type("text" + RETURN)
        assert await answer(terminal, responder, "ok") == [user("text")]


async def test_the_context_is_full(chat: Chat, responder: Responder) -> None:
    """The refusal is shown with what to do, and the conversation stays usable as it was before."""
    async with chat() as terminal:
        await terminal.shows(PROMPT)
        terminal.type("one" + RETURN)
        await answer(terminal, responder, "eins")
        terminal.type("two" + RETURN)
        full = chat_error("context_length_exceeded", "10 + 256 exceed 100", param=None, retryable=False)
        await responder.reply(await responder.request(), full, seq=0)
        await terminal.shows("leveret chat: context_length_exceeded: 10 + 256 exceed 100\n")
        await terminal.shows("/new begins a new conversation")
        await terminal.shows(PROMPT)
        terminal.type("three" + RETURN)
        assert await answer(terminal, responder, "drei") == [user("one"), assistant("eins"), user("three")]


async def test_files_go_with_the_first_message(chat: Chat, responder: Responder, tmp_path: Path) -> None:
    """The first message of each conversation carries the files, before its text; a failed one passes them on."""
    (tmp_path / "a.txt").write_text("Alpha\n")
    (tmp_path / "b.txt").write_text("Bravo\nCharlie")
    first = user("Alpha\n\nBravo\nCharlie\n\nwhich?")
    async with chat("--file", "a.txt", "--file", "b.txt") as terminal:
        await terminal.shows(PROMPT)
        terminal.type("what?" + RETURN)
        failed = chat_error("generation_failed", "a fault", param=None, retryable=True)
        await responder.reply(await responder.request(), failed, seq=0)
        await terminal.shows(PROMPT)
        terminal.type("which?" + RETURN)
        assert await answer(terminal, responder, "this") == [first]
        terminal.type("and?" + RETURN)
        assert await answer(terminal, responder, "that") == [first, assistant("this"), user("and?")]
        terminal.type("/new" + RETURN)
        await terminal.shows(PROMPT)
        terminal.type("which?" + RETURN)
        assert await answer(terminal, responder, "this") == [first]


async def test_nothing_is_written_to_disk(chat: Chat, responder: Responder, tmp_path: Path) -> None:
    """What was typed is private: no history file, in the home directory or here."""
    async with chat(HOME=str(tmp_path)) as terminal:
        await terminal.shows(PROMPT)
        terminal.type("secret" + RETURN)
        await answer(terminal, responder, "ok")
        terminal.type(CONTROL_D)
        assert await terminal.status() == 0
    assert os.listdir(tmp_path) == []  # noqa: PTH208 - nothing else runs in this loop


async def test_a_connection_lost_at_the_prompt(
    broker: PrivateBroker, queue: str, responder: Responder, tmp_path: Path
) -> None:
    """Guards against a prompt that blocks the connection: its loss is noticed, the next message goes over a new one."""
    async with TcpProxy(broker.port) as proxy:
        url = f"amqp://guest:guest@127.0.0.1:{proxy.port}/"
        async with open_chat(url, queue, tmp_path) as terminal:
            await terminal.shows(PROMPT)
            terminal.type("one" + RETURN)
            await answer(terminal, responder, "eins")
            proxy.reset_all()
            await wait_until(lambda: proxy.connections == 0, description="the line is down")
            terminal.type("two" + RETURN)
            assert await answer(terminal, responder, "zwei") == [user("one"), assistant("eins"), user("two")]
            assert proxy.accepted == 2


async def test_no_broker(queue: str, tmp_path: Path) -> None:
    """Without a broker there is no prompt but the status 3."""
    async with open_chat("amqp://guest:guest@127.0.0.1:1/", queue, tmp_path) as terminal:
        assert await terminal.status() == 3
    assert "leveret chat: connect to amqp://127.0.0.1:1/" in terminal.text
    assert PROMPT not in terminal.text


async def test_raw_is_for_one_request(chat: Chat) -> None:
    """A conversation in JSON lines makes no sense: a usage error that names the option and what to do."""
    async with chat("--raw") as terminal:
        assert await terminal.status() == 2
    assert "--raw" in terminal.text
    assert "give TEXT" in terminal.text
