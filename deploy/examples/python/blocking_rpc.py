"""Ask Leveret from a blocking program: pika, RPC over RabbitMQ's direct reply-to, with publisher confirms.

    pip install pika
    python blocking_rpc.py "What is the capital of France?"

Reads LEVERET_AMQP_URL and LEVERET_QUEUE. Exit status 0 answered, 1 error reply, 3 no answer.
"""

import json
import os
import sys
import time
import uuid
from collections import deque
from typing import Any

import pika
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import AMQPError, NackError, UnroutableError

DIRECT_REPLY_TO = "amq.rabbitmq.reply-to"
BUDGET_SECONDS = 60
MARGIN_SECONDS = 5
"""The daemon ends a request when its budget is spent; its answer still has to travel."""


Reply = tuple[Any, Any, pika.BasicProperties, bytes]
"""Channel, delivery, properties and body, as pika hands them to a consumer."""


class NoAnswerError(Exception):
    """The request got no terminal message; the message says why."""


def ask(url: str, queue: str, request: dict[str, Any]) -> dict[str, Any]:
    """Send one request and return its terminal message's body: a completion, or an object with `error`.

    Raises NoAnswerError when the request cannot be queued or nobody answers in time.
    """
    connection = pika.BlockingConnection(pika.URLParameters(url))
    try:
        channel = connection.channel()
        # A full or missing queue is told only to a publisher that asks for confirms.
        channel.confirm_delivery()
        # Direct reply-to wants the consumer first, on the channel that publishes, and without acks.
        replies: deque[Reply] = deque()
        channel.basic_consume(DIRECT_REPLY_TO, lambda *reply: replies.append(reply), auto_ack=True)
        correlation_id = publish(channel, queue, request)
        return wait(connection, replies, correlation_id)
    finally:
        connection.close()


def publish(channel: BlockingChannel, queue: str, request: dict[str, Any]) -> str:
    """Queue the request and return its correlation id once the broker has it."""
    correlation_id = uuid.uuid4().hex
    properties = pika.BasicProperties(
        content_type="application/json",
        correlation_id=correlation_id,
        message_id=uuid.uuid4().hex,
        reply_to=DIRECT_REPLY_TO,
        timestamp=int(time.time()),
        delivery_mode=pika.DeliveryMode.Persistent,
    )
    body = json.dumps(request | {"timeout": BUDGET_SECONDS}).encode()
    try:
        channel.basic_publish("", queue, body, properties, mandatory=True)
    except UnroutableError as error:
        raise NoAnswerError(f"there is no queue {queue!r}; has a daemon been started?") from error
    except NackError as error:
        raise NoAnswerError(f"the queue {queue!r} is full; try again later") from error
    return correlation_id


def wait(connection: pika.BlockingConnection, replies: deque[Reply], correlation_id: str) -> dict[str, Any]:
    """Return the first terminal message with this id. Chunks only come where the request says `"stream": true`."""
    deadline = time.monotonic() + BUDGET_SECONDS + MARGIN_SECONDS
    while time.monotonic() < deadline:
        connection.process_data_events(time_limit=1)
        while replies:
            _, _, properties, body = replies.popleft()
            if properties.correlation_id == correlation_id and properties.headers["final"]:
                answer: dict[str, Any] = json.loads(body)
                return answer
    raise NoAnswerError(f"no answer within {BUDGET_SECONDS + MARGIN_SECONDS} s")


def main() -> int:
    """Ask what the command line says, and print the answer."""
    url = os.environ.get("LEVERET_AMQP_URL", "amqp://guest:guest@localhost:5672/")
    queue = os.environ.get("LEVERET_QUEUE", "chat.requests")
    request = {"messages": [{"role": "user", "content": sys.argv[1]}], "max_new_tokens": 64, "temperature": 0}
    try:
        answer = ask(url, queue, request)
    except (NoAnswerError, AMQPError) as error:
        print(f"no answer: {error or repr(error)}", file=sys.stderr)
        return 3
    if "error" in answer:
        print(f"{answer['error']['code']}: {answer['error']['message']}", file=sys.stderr)
        return 1
    print(answer["choices"][0]["message"]["content"])
    return 0


if __name__ == "__main__":
    sys.exit(main())
