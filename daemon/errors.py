"""One hierarchy of errors: each exception knows its code on the wire and whether trying again can help.

The message of an exception is the sentence the requester or the operator reads: it names the field or
setting, the offending value and what was expected.
"""


class LeveretError(Exception):
    """An error that ends a request with a `chat.error` reply.

    `code` is the wire code (contract, section 3), `retryable` says whether the same request may succeed
    later, `param` is the JSON path of the offending field, if one is to blame.
    """

    code = "generation_failed"
    retryable = False

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param


class InvalidRequest(LeveretError):
    """The body, a field or the envelope of a request is wrong; `param` says which."""

    code = "invalid_request"


class ModelNotFound(LeveretError):
    """The request names a model that this daemon does not serve."""

    code = "model_not_found"


class ContextLengthExceeded(LeveretError):
    """Prompt and `max_new_tokens` together do not fit the context; the message holds both numbers."""

    code = "context_length_exceeded"


class DeadlineExceeded(LeveretError):
    """The request's time budget ran out, in the queue or while it was generated."""

    code = "deadline_exceeded"
    retryable = True


class Cancelled(LeveretError):
    """Somebody entitled to it cancelled the request."""

    code = "cancelled"


class GenerationFailed(LeveretError):
    """The model failed on this request; the daemon itself is well."""

    code = "generation_failed"
    retryable = True


class DeliveryLimitExceeded(LeveretError):
    """The request was delivered as often as the queue allows, and no attempt ended with an answer."""

    code = "delivery_limit_exceeded"


class Expired(LeveretError):
    """The request's `expiration` passed while it waited in the queue."""

    code = "expired"
    retryable = True


class ConfigurationError(Exception):
    """A setting, the model or the broker's set-up is unusable; the process ends with status 78 (EX_CONFIG).

    The message is one sentence: what is wrong, its value, and what to do.
    """
