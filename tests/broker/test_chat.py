"""`leveret chat` as a process, on a real broker, against a scripted responder."""

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from pathlib import Path

import pytest
from private_broker import PrivateBroker

from schemas.replies import chat_error
from tests.support.responder import HEAD, Responder, fields

ANSWERED, ERROR_REPLY, USAGE, NO_ANSWER = 0, 1, 2, 3


class Terminal:
    """Starts the command and reads what it prints."""

    def __init__(self, url: str, queue: str, directory: Path) -> None:
        self._directory = directory
        self._environment = os.environ | {
            "LEVERET_AMQP_URL": url,
            "LEVERET_QUEUE": queue,
            "PYTHONPATH": str(Path(__file__).parents[2]),
        }

    async def start(self, *arguments: str) -> Process:
        """Run `leveret chat` with its standard streams in pipes."""
        program = (sys.executable, "-c", "from daemon.cli import main; main()", "chat", *arguments)
        return await asyncio.create_subprocess_exec(
            *program, stdin=PIPE, stdout=PIPE, stderr=PIPE, env=self._environment, cwd=self._directory
        )

    async def end(self, process: Process, text: bytes | None = None) -> tuple[int | None, str, str]:
        """Wait for exit status, output and errors."""
        out, err = await asyncio.wait_for(process.communicate(text), 30)
        return process.returncode, out.decode(), err.decode()


@pytest.fixture
def terminal(broker: PrivateBroker, queue: str, tmp_path: Path) -> Terminal:
    return Terminal(broker.url, queue, tmp_path)


async def test_the_answer_streams(terminal: Terminal, responder: Responder) -> None:
    """Text is on the terminal before the answer has ended; the exit status is 0."""
    process = await terminal.start("Grüße")
    request = await responder.request()
    assert fields(request) == {"messages": [{"role": "user", "content": "Grüße"}], "stream": True}
    assert request.user_id == "guest"
    await responder.chunk(request, "Hel", seq=0)
    assert process.stdout is not None
    assert await asyncio.wait_for(process.stdout.readexactly(3), 10) == b"Hel"
    await responder.chunk(request, "lo 👋", seq=1)
    await responder.finish(request, "Hello 👋")
    assert await terminal.end(process) == (ANSWERED, "lo 👋\n", "")


async def test_every_option_is_sent(terminal: Terminal, responder: Responder, tmp_path: Path) -> None:
    """Each option arrives in its field, and nothing else does."""
    schema = {"type": "object"}
    (tmp_path / "schema.json").write_text(json.dumps(schema))
    plain = ["--system", "Be brief.", "--max-new-tokens", "5", "--temperature", "0", "--seed", "7", "--timeout", "9.5"]
    process = await terminal.start("hi", *plain, "--json-schema", "schema.json")
    request = await responder.request()
    assert fields(request) == {
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}],
        "max_new_tokens": 5,
        "temperature": 0,
        "seed": 7,
        "timeout": 9.5,
        "response_format": {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}},
        "stream": True,
    }
    await responder.finish(request, "{}")
    assert await terminal.end(process) == (ANSWERED, "{}\n", "")


async def test_choice(terminal: Terminal, responder: Responder) -> None:
    """Labels are separated by commas; spaces around them are the shell user's, not the label's."""
    process = await terminal.start("hi", "--choice", "yes, no,maybe")
    request = await responder.request()
    assert fields(request)["structured_outputs"] == {"choice": ["yes", "no", "maybe"]}
    await responder.finish(request, "no")
    assert await terminal.end(process) == (ANSWERED, "no\n", "")


@pytest.mark.parametrize("arguments", [(), ("-",)])
async def test_text_through_a_pipe(terminal: Terminal, responder: Responder, arguments: tuple[str, ...]) -> None:
    """Without a text, or with `-`, the message is what comes through the pipe, less its last line end."""
    process = await terminal.start(*arguments)
    ending = asyncio.create_task(terminal.end(process, b"two\nlines\n"))
    request = await responder.request()
    assert fields(request)["messages"][0]["content"] == "two\nlines"
    await responder.finish(request, "ok\n")
    assert await ending == (ANSWERED, "ok\n", "")


@pytest.mark.parametrize(
    ("arguments", "content"),
    [
        (("what?",), "Äpfel\n\nBirnen\n\nwhat?"),
        (("-",), "Äpfel\n\nBirnen\n\npiped"),
        ((), "Äpfel\n\nBirnen"),
    ],
)
async def test_files(
    terminal: Terminal, responder: Responder, tmp_path: Path, arguments: tuple[str, ...], content: str
) -> None:
    """Files stand before the message in their order, without byte order mark; the pipe is only read for `-`."""
    (tmp_path / "a.txt").write_bytes("\ufeffÄpfel\n".encode())
    (tmp_path / "b.txt").write_text("Birnen")
    process = await terminal.start(*arguments, "--file", "a.txt", "--file", "b.txt")
    ending = asyncio.create_task(terminal.end(process, b"piped\n"))
    request = await responder.request()
    assert fields(request)["messages"] == [{"role": "user", "content": content}]
    await responder.finish(request, "ok")
    assert await ending == (ANSWERED, "ok\n", "")


async def test_raw(terminal: Terminal, responder: Responder) -> None:
    """Each reply is one line of JSON, the terminal one included."""
    process = await terminal.start("hi", "--raw")
    request = await responder.request()
    await responder.chunk(request, "a\nb", seq=0)
    await responder.finish(request, "a\nb")
    status, out, err = await terminal.end(process)
    assert (status, err) == (ANSWERED, "")
    kinds = [json.loads(line)["object"] for line in out.splitlines()]
    assert kinds == ["chat.completion.chunk", "chat.completion"]


@pytest.mark.parametrize(("options", "lines"), [((), 0), (("--raw",), 1)])
async def test_an_error_reply(terminal: Terminal, responder: Responder, options: tuple[str, ...], lines: int) -> None:
    """Exit status 1, the code and the words on stderr; raw, the body is a line like the others."""
    process = await terminal.start("hi", *options)
    request = await responder.request()
    await responder.reply(
        request, chat_error("model_not_found", "no such model", param="model", retryable=False), seq=0
    )
    status, out, err = await terminal.end(process)
    assert (status, err) == (ERROR_REPLY, "leveret chat: model_not_found: no such model\n")
    codes = [json.loads(line)["error"]["code"] for line in out.splitlines()]
    assert codes == ["model_not_found"] * lines


async def test_a_restart_is_visible(terminal: Terminal, responder: Responder) -> None:
    """Text that a later attempt replaces stays on its own line, with a word on stderr."""
    process = await terminal.start("hi")
    request = await responder.request()
    await responder.chunk(request, "old", seq=0, attempt=1)
    assert process.stdout is not None
    assert await asyncio.wait_for(process.stdout.readexactly(3), 10) == b"old"
    await responder.finish(request, "new", attempt=2)
    assert await terminal.end(process) == (
        ANSWERED,
        "\nnew\n",
        "leveret chat: the answer begins anew, after a fault\n",
    )


async def test_interrupt_cancels_on_the_bus(terminal: Terminal, responder: Responder) -> None:
    """Ctrl-C publishes a cancel with the request's id and waits for the terminal message that it brings."""
    process = await terminal.start("hi")
    request = await responder.request()
    await responder.reply(request, HEAD.chunk("so far", None, first=True), seq=0)
    assert process.stdout is not None
    assert await asyncio.wait_for(process.stdout.readexactly(6), 10) == b"so far"
    process.send_signal(signal.SIGINT)
    assert await responder.cancelled_id() == request.correlation_id
    await responder.reply(request, chat_error("cancelled", "cancelled on the bus", param=None, retryable=False), seq=1)
    assert await terminal.end(process) == (ERROR_REPLY, "\n", "leveret chat: cancelled: cancelled on the bus\n")


async def test_no_answer_in_time(terminal: Terminal, responder: Responder) -> None:
    """Exit status 3 when nobody answers, and the request is cancelled."""
    process = await terminal.start("hi", "--timeout", "0.01")
    request = await responder.request()
    status, out, err = await terminal.end(process)
    assert (status, out) == (NO_ANSWER, "")
    assert "no terminal message within" in err
    assert await responder.cancelled_id() == request.correlation_id


async def test_no_queue(terminal: Terminal, queue: str) -> None:
    """Exit status 3, and the missing queue by its name."""
    status, out, err = await terminal.end(await terminal.start("hi"))
    assert (status, out) == (NO_ANSWER, "")
    assert f"{queue!r} does not exist" in err


async def test_no_broker(tmp_path: Path) -> None:
    """Exit status 3 and one line, without a traceback."""
    terminal = Terminal("amqp://guest:guest@127.0.0.1:1/", "chat.requests", tmp_path)
    status, out, err = await terminal.end(await terminal.start("hi"))
    assert (status, out) == (NO_ANSWER, "")
    assert err.startswith("leveret chat: connect to amqp://127.0.0.1:1/")
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ("a", "b"),
        ("hi", "--no-such-option"),
        ("hi", "--seed", "x"),
        ("hi", "--temperature", "nan"),
        ("hi", "--json-schema", "missing.json"),
        ("hi", "--json-schema", "broken.json"),
        ("hi", "--json-schema", "broken.json", "--choice", "a,b"),
        ("hi\udcff",),
    ],
)
async def test_usage(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    """What cannot be sent at all is exit status 2 before any connection, told on stderr."""
    (tmp_path / "broken.json").write_text("{")
    terminal = Terminal("amqp://127.0.0.1:1/", "chat.requests", tmp_path)
    status, out, err = await terminal.end(await terminal.start(*arguments))
    assert (status, out) == (USAGE, "")
    assert "Error" in err


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("missing.txt", None, "No such file"),
        (".", None, "Is a directory"),
        ("latin-1.txt", "Grüße".encode("latin-1"), "is not UTF-8"),
        ("large.txt", b"a" * 1025, "is larger than a request may be, 1024 bytes (LEVERET_MAX_BODY_BYTES)"),
        ("/dev/zero", None, "is larger than a request may be"),
    ],
)
async def test_unusable_files(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, content: bytes | None, reason: str
) -> None:
    """Exit status 2 before any connection; option, path and reason are named, and no file is read without an end."""
    if content is not None:
        (tmp_path / name).write_bytes(content)
    monkeypatch.setenv("LEVERET_MAX_BODY_BYTES", "1024")
    terminal = Terminal("amqp://127.0.0.1:1/", "chat.requests", tmp_path)
    status, out, err = await terminal.end(await terminal.start("hi", "--file", name))
    assert (status, out) == (USAGE, "")
    assert "--file" in err
    assert repr(name) in err
    assert reason in err
