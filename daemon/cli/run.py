"""`leveret run`: the daemon."""

import asyncio
import os
import signal
import sys
from typing import TYPE_CHECKING, NoReturn

import structlog

from daemon import logs
from daemon.cli.command import command_app
from daemon.errors import ConfigurationError
from daemon.models import ModelLocation, find_model
from daemon.settings import Settings, load_settings

if TYPE_CHECKING:
    from types import FrameType

EX_CONFIG = 78
EX_SOFTWARE = 70

app = command_app()


@app.command()
def run() -> None:
    """Serve requests until SIGTERM or SIGINT.

    Exit status 0 after an orderly stop, 78 where a setting, the model or the broker's set-up is unusable (one log line
    says which), 70 after an internal fault.
    """
    # Until the event loop takes over, nothing needs draining. As process 1 the default action would be to ignore.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _leave)
    logs.configure("info", "auto")
    try:
        settings = load_settings()
        logs.configure(settings.log_level, settings.log_format)
        _serve(settings)
    except ConfigurationError as error:
        structlog.get_logger("daemon").critical(str(error))
        _end(EX_CONFIG)
    except Exception:  # noqa: BLE001 - the last resort: logged, and the exit status tells
        structlog.get_logger("daemon").critical("the daemon ends after an internal fault", exc_info=True)
        _end(EX_SOFTWARE)
    _end(0)


def _serve(settings: Settings) -> None:
    location = _locate(settings)
    os.environ["HF_HUB_OFFLINE"] = os.environ["TRANSFORMERS_OFFLINE"] = "1"
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # one prompt at a time: no thread for each core of the host
    from daemon.app import App  # noqa: PLC0415 - seconds of imports, after the cheap checks

    async def serve() -> None:
        await App(settings, location).run()

    asyncio.run(serve())


def _locate(settings: Settings) -> ModelLocation:
    """Find the model; download it only where FETCH says so."""
    try:
        return find_model(settings.model, settings.models_dir, settings.model_revision)
    except ConfigurationError:
        if not settings.fetch:
            raise
    from daemon.fetching import FetchError, fetch_model  # noqa: PLC0415

    log = structlog.get_logger("daemon")
    try:
        return fetch_model(settings.model, settings.models_dir, settings.model_revision, log.info)
    except FetchError as error:
        raise ConfigurationError(f"LEVERET_MODEL: {error}") from error


def _leave(_: int, __: "FrameType | None") -> NoReturn:
    _end(0)


def _end(status: int) -> NoReturn:
    """Leave at once: a load in the engine's thread cannot be interrupted, and nothing waits for it."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
