"""A whole daemon in the test's own process: real broker, real engine thread, and a model that the test may wrap."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from daemon import app as app_module
from daemon.app import App
from daemon.engine.engine import Engine
from daemon.engine.types import Model
from daemon.models import ModelLocation
from daemon.settings import Settings
from tests.support.fake_engine import load_float32
from tests.support.wait import wait_until

Wrap = Callable[[Model], Model]


@asynccontextmanager
async def running_app(
    model_dir: Path, *, model_id: str = "test/model", wrap: Wrap | None = None, **settings: Any
) -> AsyncIterator[App]:
    """Run a daemon on `model_dir` until the block ends; it is ready when the block begins.

    `wrap` replaces the loaded model, `settings` are fields of Settings (`amqp_url` and `queue` are needed).
    """
    chosen = Settings(_env_file=None, health_port=0, **settings)
    location = ModelLocation(model_dir, model_id, None)

    def load(_: Settings, where: ModelLocation) -> Engine:
        engine = load_float32(where.path)
        return Engine(wrap(engine.model), engine.tokenizer) if wrap else engine

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(app_module, "engine_loader", load)
        app = App(chosen, location)
        running = asyncio.create_task(app.run())
        try:
            await wait_until(
                lambda: running.done() or not app.lifecycle.not_ready(),
                description="the daemon is ready",
                timeout_seconds=90,
            )
            yield app
        finally:
            app.stop()
            await asyncio.wait_for(running, 60)
