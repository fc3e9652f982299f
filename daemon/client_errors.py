"""What can become of a request other than an answer, as the reference client tells its caller."""

from schemas.replies import ChatError, ErrorCode, Partial


class ClientError(Exception):
    """A request got no answer; the subclass says why."""


class RequestRefused(ClientError):
    """The daemon answered with an error.

    `code` is one of the contract's codes, `param` the JSON path to blame or None, `retryable` whether the same request
    may succeed later, `partial` what had been generated when the request ended early, or None.
    """

    def __init__(self, reply: ChatError) -> None:
        error = reply.error
        super().__init__(error.message)
        self.code: ErrorCode = error.code
        self.param: str | None = error.param
        self.retryable: bool = error.retryable
        self.partial: Partial | None = reply.partial


class QueueFull(ClientError):
    """The broker refused the request because the queue is full; nothing was queued. Try again later."""


class NoDaemonQueue(ClientError):
    """The request queue or the cancel exchange does not exist: no daemon has declared it on this broker."""


class BrokerRefused(ClientError):
    """The broker refuses this client: credentials, virtual host, a right, or `user_id`. Trying again does not help."""


class BrokerUnavailable(ClientError):
    """The broker cannot be reached, did not confirm in time, or the connection was lost while waiting.

    Whether the request was carried out is unknown; asking again is safe, for it is a new request.
    """


class AnswerTimeout(ClientError):
    """No terminal message came in time."""


class UnreadableReply(ClientError):
    """The terminal message does not have the contract's shape."""


class ClientClosed(ClientError):
    """The client was closed while the request waited, or before it was sent."""
