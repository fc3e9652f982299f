"""`leveret run`, on a scripted model whose every step takes a chosen time: `python -m tests.support.slow_daemon`.

Everything else is the daemon as it ships. Environment:
SLOW_SECONDS_PER_EXTEND (0.05) time of a step; SLOW_LOAD_SECONDS (0) time of loading the model;
SLOW_REFUSED_SECONDS how long a reply queue may refuse messages (`daemon.replies.REFUSED_SECONDS`).
"""

import ctypes
import os
import signal
import threading

from daemon import app, replies
from daemon.cli.run import run
from daemon.engine.engine import Engine
from daemon.engine.load import EngineOptions
from daemon.models import ModelLocation
from daemon.settings import Settings
from tests.support.successor_model import load_successor_engine

_PR_SET_PDEATHSIG = 1


def _seconds(name: str, default: float) -> float:
    return float(os.environ.get(f"SLOW_{name}", default))


def _load(settings: Settings, location: ModelLocation) -> Engine:
    threading.Event().wait(_seconds("LOAD_SECONDS", 0))
    options = EngineOptions(location.path, "float32", 1, settings.context_tokens, 0)
    return load_successor_engine(options, _seconds("SECONDS_PER_EXTEND", 0.05))


def main() -> None:
    """Run the daemon; it dies with the test run that started it."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    app.engine_loader = _load
    replies.REFUSED_SECONDS = _seconds("REFUSED_SECONDS", replies.REFUSED_SECONDS)
    run()


if __name__ == "__main__":
    main()
