"""Logs: structlog, one JSON object a line when stdout is no terminal, coloured text when it is.

Everything goes through one pipeline, whatever its origin: libraries' own logs, warnings, uncaught exceptions of the
process, of threads and of the event loop. Prompts and answers are never logged.
"""

import asyncio
import logging
import sys
import threading
import traceback
import warnings
from types import TracebackType
from typing import Any

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

_BUS_LOGGERS = ("aiormq", "aio_pika")
_NOISY = ("aiormq", "aio_pika", "asyncio", "numba", "urllib3", "httpx", "filelock", "aiohttp.access")


def _printable(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    """Foreign bytes arrive as surrogate escapes, which no output can encode: show them as escapes."""
    for key, value in event.items():
        if isinstance(value, str) and not value.isascii():
            event[key] = value.encode("utf-8", "backslashreplace").decode()
    return event


def _of_the_bus(record: logging.LogRecord) -> bool:
    """What of the AMQP library's records is let through: no bodies, which are prompts and answers, and no echo.

    Each failed connect is logged by the link, with its reason.
    """
    if record.name.startswith(_BUS_LOGGERS) and isinstance(record.args, tuple):
        record.args = tuple(
            value if isinstance(value, str | int | float | None) else type(value).__name__ for value in record.args
        )
    return not str(record.msg).startswith("error when creating transport")


def _renderer(log_format: str) -> list[Processor]:
    as_text = log_format == "text" or (log_format == "auto" and sys.stdout.isatty())
    if as_text:
        return [structlog.dev.ConsoleRenderer(colors=sys.stdout.isatty())]
    return [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(ensure_ascii=False)]


def configure(level: str, log_format: str) -> None:
    """Set up logging for the process: `level` as in LOG_LEVEL, `log_format` as in LOG_FORMAT."""
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.ExtraAdder(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _printable,
    ]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    remove_meta = structlog.stdlib.ProcessorFormatter.remove_processors_meta
    handler = logging.StreamHandler(sys.stdout)
    handler.addFilter(_of_the_bus)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(foreign_pre_chain=shared, processors=[remove_meta, *_renderer(log_format)])
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name in _NOISY:
        # aiormq logs whole frames, bodies included, at debug level: prompts must not get there.
        logging.getLogger(name).setLevel(max(logging.WARNING, root.level))
    _catch_everything()


def _catch_everything() -> None:
    logging.captureWarnings(True)
    warnings.simplefilter("default")
    log = structlog.get_logger("daemon")

    def on_exception(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        log.critical("uncaught exception", exc_info=(kind, error, trace))

    def on_thread(args: threading.ExceptHookArgs) -> None:
        name = args.thread.name if args.thread else None
        log.error("uncaught exception in a thread", thread=name, exc_info=args.exc_value)

    sys.excepthook = on_exception
    threading.excepthook = on_thread


def log_failure(event: str, error: BaseException) -> None:
    """Log an exception by its kind and the places it came through, without its message, which may quote a prompt."""
    places = [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in traceback.extract_tb(error.__traceback__)]
    structlog.get_logger("daemon").error(event, error=type(error).__name__, traceback=places)


def on_loop_exception(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log what the event loop could not hand to anybody."""
    log = structlog.get_logger("daemon")
    log.error("event loop", detail=context.get("message"), exc_info=context.get("exception"))
