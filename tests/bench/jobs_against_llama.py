"""Whole jobs over a real broker against a plain worker around llama.cpp; prints the median of the paired ratios.

    PYTHONPATH=deploy/demo python -m tests.bench.jobs_against_llama MODEL_DIR PEER_PYTHON FILE.gguf

Both serve the same small model behind the same fixed instruction of about 200 tokens, one request at a time, in
turns: a label of five, five JSON fields, a chat answer of at most 64 tokens. PEER_PYTHON is a Python with
llama-cpp-python and aio-pika.
"""

import asyncio
import json
import sys
import tempfile
import time
import uuid
from pathlib import Path
from typing import Any

import aio_pika
from aio_pika.abc import AbstractChannel, AbstractQueue, AbstractQueueIterator
from daemon_process import await_ready, daemon
from private_broker import PrivateBroker, free_port

from daemon.engine.threads import effective_threads
from tests.bench.pairs import circumstances, peer, told

TICKETS = Path("deploy/examples/tickets")
LABELS = ["billing", "delivery", "technical", "account", "feedback"]
WARMING_UP = 2
"""Pairs that do not count: both compute the instruction and compile the grammar."""
INSTRUCTION = """You work for a shop for household devices and read the messages that its customers send.
A message is about one of five things.
billing: invoices, payments, charges, refunds, vouchers and fees.
delivery: parcels, shipping, customs, wrong, damaged or missing items.
technical: a device or the app does not work as it should, an update failed, a part is broken.
account: password, login, profile, address, personal data and how to have it deleted.
feedback: praise, thanks, complaints about tone, ideas for new products.
When you are asked for a label, answer with the label alone. When you are asked for fields, take them from the message
as they are written there, and leave out nothing. When you are asked for a reply, write it in the language of the
message, be friendly and brief, promise nothing that the message does not ask for, name no names of staff, and close
with an offer of further help. Never invent an order number."""


def jobs() -> dict[str, list[dict[str, Any]]]:
    """Requests by kind, each for other tickets."""
    texts, fields = _texts("labels.jsonl", 36), _texts("fields.jsonl", 10)
    schema = {"name": "fields", "schema": json.loads((TICKETS / "fields-schema.json").read_text("utf-8"))}
    form = {"response_format": {"type": "json_schema", "json_schema": schema}}
    return {
        "label": [_request(f"Label this: {text}", 8, structured_outputs={"choice": LABELS}) for text in texts],
        "extract": [_request(f"Fields of this: {text}", 120, **form) for text in fields],
        "chat": [_request(f"Reply to this: {text}", 64) for text in texts[:10]],
    }


def _texts(name: str, count: int) -> list[str]:
    return [json.loads(line)["text"] for line in (TICKETS / name).read_text("utf-8").splitlines()[:count]]


def _request(text: str, limit: int, **form: object) -> dict[str, Any]:
    messages = [{"role": "system", "content": INSTRUCTION}, {"role": "user", "content": text}]
    return {"messages": messages, "max_new_tokens": limit, "temperature": 0, **form}


class Requester:
    """Sends one request at a time and waits for its answer, in an exclusive queue."""

    def __init__(self, channel: AbstractChannel, queue: AbstractQueue, answers: AbstractQueueIterator) -> None:
        self._channel, self._queue, self._answers = channel, queue, answers

    async def seconds(self, queue: str, request: dict[str, Any]) -> float:
        """From the publish to the whole answer."""
        correlation_id = uuid.uuid4().hex
        started = time.perf_counter()
        message = aio_pika.Message(
            json.dumps(request).encode(), reply_to=self._queue.name, correlation_id=correlation_id, expiration=120
        )
        await self._channel.default_exchange.publish(message, queue)
        async for answer in self._answers:
            await answer.ack()
            if answer.correlation_id == correlation_id:
                body = json.loads(answer.body)
                assert "choices" in body, body
                return time.perf_counter() - started
        raise SystemExit("the broker ended the consumer")


async def compare(url: str) -> None:
    """Run all jobs on both, in turns."""
    async with await aio_pika.connect(url) as connection, connection.channel() as channel:
        queue = await channel.declare_queue(exclusive=True)
        async with queue.iterator() as answers:
            requester = Requester(channel, queue, answers)
            for kind, requests in jobs().items():
                pairs = [
                    (await requester.seconds("chat.requests", request), await requester.seconds("peer", request))
                    for request in requests
                ]
                print(told(kind, pairs[WARMING_UP:]), flush=True)


def main() -> None:
    """Start a private broker and both workers, compare, stop everything."""
    directory, python, gguf = sys.argv[1:]
    port, threads = free_port(), effective_threads(None)
    with PrivateBroker() as broker, tempfile.NamedTemporaryFile() as log:
        settings = {
            "LEVERET_AMQP_URL": broker.url,
            "LEVERET_MODEL": directory,
            "LEVERET_HEALTH_PORT": str(port),
            "LEVERET_CONTEXT_TOKENS": "2048",
        }
        with (
            daemon(settings, log.file) as process,
            peer(python, "llama_worker.py", broker.url, "peer", gguf, str(threads)),
        ):
            await_ready(process, port, Path(log.name))
            asyncio.run(compare(broker.url))
    print(circumstances())


if __name__ == "__main__":
    main()
