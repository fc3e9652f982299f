"""The examples in other languages and libraries, as they are shipped, on a real broker."""

import asyncio
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Mapping
from pathlib import Path

import aio_pika
import pytest
from private_broker import PrivateBroker

from schemas.replies import ErrorCode, chat_error
from tests.readme.markdown import read_blocks
from tests.support.in_process import running_app
from tests.support.node import ROOT, node_command
from tests.support.responder import Responder, fields
from tests.support.scripted_model import write_scripted_model

EXAMPLES = ROOT / "deploy" / "examples"
Command = tuple[list[str], Mapping[str, str]]


def python_example() -> Command:
    return [sys.executable, str(EXAMPLES / "python" / "blocking_rpc.py")], os.environ


def node_example() -> Command:
    return node_command(EXAMPLES / "node" / "streaming.cjs")


BOTH = pytest.mark.parametrize("example", [python_example, node_example])


class Examples:
    """Starts an example against the test's broker and queue."""

    def __init__(self, url: str, queue: str) -> None:
        self._settings = {"LEVERET_AMQP_URL": url, "LEVERET_QUEUE": queue}

    async def start(self, example: Callable[[], Command], text: str = "Grüße") -> Process:
        """Run it with its output in pipes."""
        command, environment = await asyncio.to_thread(example)
        return await asyncio.create_subprocess_exec(
            *command, text, stdout=PIPE, stderr=PIPE, env={**environment, **self._settings}
        )

    async def end(self, process: Process) -> tuple[int | None, str, str]:
        """Wait for exit status, output and errors."""
        out, err = await asyncio.wait_for(process.communicate(), 60)
        return process.returncode, out.decode(), err.decode()


@pytest.fixture
def examples(broker: PrivateBroker, queue: str) -> Examples:
    return Examples(broker.url, queue)


@BOTH
async def test_against_a_real_daemon(
    broker: PrivateBroker, queue: str, examples: Examples, tmp_path: Path, example: Callable[[], Command]
) -> None:
    """Each example gets the whole answer of a daemon that runs."""
    model = write_scripted_model(tmp_path / "model", ["Grüße", " aus", " 🐇", "."])
    async with running_app(model, amqp_url=broker.url, queue=queue):
        process = await examples.start(example)
        assert await examples.end(process) == (0, "Grüße aus 🐇.\n", "")


@BOTH
async def test_an_error_reply(examples: Examples, responder: Responder, example: Callable[[], Command]) -> None:
    """A refused request is exit status 1, with code and words."""
    process = await examples.start(example)
    request = await responder.request()
    await responder.reply(request, chat_error("expired", "too late", param=None, retryable=True), seq=0)
    status, _, err = await examples.end(process)
    assert (status, err) == (1, "expired: too late\n")


@BOTH
async def test_no_queue(examples: Examples, queue: str, example: Callable[[], Command]) -> None:
    """A queue that nobody has declared is told at once."""
    status, _, err = await examples.end(await examples.start(example))
    assert status == 3
    assert queue in err
    assert "has a daemon been started" in err


@BOTH
async def test_a_full_queue(
    broker: PrivateBroker, queue: str, examples: Examples, example: Callable[[], Command]
) -> None:
    """A queue that refuses is told at once; without confirms the request would vanish."""
    arguments = {"x-queue-type": "classic", "x-max-length": 1, "x-overflow": "reject-publish"}
    connection = await aio_pika.connect(broker.url, timeout=10)
    async with connection, connection.channel() as channel:
        await channel.declare_queue(queue, durable=True, arguments=arguments, timeout=10)
        await channel.default_exchange.publish(aio_pika.Message(b"first"), queue, timeout=10)
        status, _, err = await examples.end(await examples.start(example))
    assert status == 3
    assert "is full" in err


@BOTH
async def test_no_broker(example: Callable[[], Command]) -> None:
    """A broker that is not there is one line, not a traceback."""
    nowhere = Examples("amqp://guest:guest@127.0.0.1:1/", "chat.requests")
    status, out, err = await nowhere.end(await nowhere.start(example))
    assert (status, out) == (3, "")
    assert err.startswith("no answer: ")
    assert len(err.splitlines()) == 1


async def test_node_streams_and_keeps_the_order(examples: Examples, responder: Responder) -> None:
    """Text appears before the end; copies and late chunks are dropped; a later attempt starts on a new line."""
    process = await examples.start(node_example)
    request = await responder.request()
    assert fields(request)["stream"] is True
    await responder.chunk(request, "old", seq=0, attempt=1)
    assert process.stdout is not None
    assert await asyncio.wait_for(process.stdout.readexactly(3), 10) == b"old"
    await responder.chunk(request, "ne", seq=0, attempt=2)
    await responder.chunk(request, "ne", seq=0, attempt=2)
    await responder.chunk(request, "late", seq=1, attempt=1)
    await responder.finish(request, "new", attempt=2)
    await responder.finish(request, "never seen", attempt=3)
    assert await examples.end(process) == (0, "\nnew\n", "")


async def test_python_keeps_the_first_terminal_message(examples: Examples, responder: Responder) -> None:
    """Chunks and foreign ids are passed over, and the answer that comes first is the answer."""
    process = await examples.start(python_example)
    request = await responder.request()
    assert request.reply_to is not None
    assert request.reply_to.startswith("amq.rabbitmq.reply-to.")
    await responder.chunk(request, "chunk", seq=0)
    await responder.finish(request, "foreign", correlation_id="another")
    await responder.finish(request, "first")
    assert await examples.end(process) == (0, "first\n", "")


async def test_the_page_on_clients(
    broker: PrivateBroker, queue: str, examples: Examples, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The Python program on the page runs as it is printed there, against a real daemon."""
    (block,) = (block for block in read_blocks(ROOT / "deploy" / "docs" / "clients.md") if block.note == "run")
    program = tmp_path / "program.py"
    program.write_text(block.text, "utf-8")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    model = write_scripted_model(tmp_path / "model", ["red", ", green", ", blue"])
    async with running_app(model, amqp_url=broker.url, queue=queue):
        process = await examples.start(lambda: ([sys.executable, str(program)], os.environ))
        assert await examples.end(process) == (0, "red, green, blue\n4 tokens\nTrue\n", "")


def test_the_page_names_every_error_code() -> None:
    """A code that the table leaves out would leave its reader without advice."""
    page = (ROOT / "deploy" / "docs" / "clients.md").read_text("utf-8")
    assert [code for code in ErrorCode if f"`{code}`" not in page] == []
