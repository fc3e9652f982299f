"""The names on the broker that follow from the name of the request queue (contract, section 1)."""

REQUEST_QUEUE = "chat.requests"
"""The request queue where nothing else is configured."""


def prefix_of(queue: str) -> str:
    """What the names of all other queues and exchanges begin with: `chat` for `chat.requests`."""
    return queue.removesuffix(".requests") or queue


def cancel_exchange(queue: str) -> str:
    """The fanout exchange that carries cancels to every daemon that serves `queue`."""
    return f"{prefix_of(queue)}.cancel"
