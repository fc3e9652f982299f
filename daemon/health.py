"""The HTTP port: how the process is, from what is observed at the moment of asking. Busy is healthy."""

from collections.abc import Callable, Mapping

import structlog
from aiohttp import web

from daemon import __version__
from daemon.errors import ConfigurationError
from daemon.lifecycle import Lifecycle
from daemon.observed import Observed

log = structlog.get_logger(__name__)


class HealthServer:
    """Serves `/livez`, `/readyz`, `/health` and `/metrics` (contract, section 5).

    `tables` tells how many entries each table of the worker has.
    """

    def __init__(self, lifecycle: Lifecycle, model_id: str, tables: Callable[[], Mapping[str, int]]) -> None:
        self._lifecycle, self._model_id = lifecycle, model_id
        self._observed = Observed(lifecycle, model_id, tables)
        self._runner: web.AppRunner | None = None

    async def start(self, host: str, port: int) -> int:
        """Listen; returns the port, which is a free one where `port` is 0. Raises ConfigurationError if it is taken."""
        app = web.Application()
        app.add_routes(
            [
                web.get("/livez", self._livez),
                web.get("/readyz", self._readyz),
                web.get("/health", self._health),
                web.get("/metrics", self._metrics),
            ]
        )
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, host, port)
        try:
            await site.start()
        except OSError as error:
            await self.stop()
            raise ConfigurationError(
                f"LEVERET_HEALTH_PORT: cannot listen on {host}:{port}: {error.strerror or error}; choose another or 0"
            ) from error
        bound = int(self._runner.addresses[0][1])
        log.info("health port is open", host=host, port=bound)
        return bound

    async def stop(self) -> None:
        """Stop listening; idempotent."""
        await self._observed.close()
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _livez(self, _: web.Request) -> web.Response:
        reason = self._lifecycle.not_alive()
        return web.Response(status=503 if reason else 200, text=f"{reason or 'ok'}\n")

    async def _readyz(self, _: web.Request) -> web.Response:
        reasons = self._lifecycle.not_ready()
        return web.Response(status=503 if reasons else 200, text="\n".join(reasons or ["ok"]) + "\n")

    async def _health(self, _: web.Request) -> web.Response:
        reasons = self._lifecycle.not_ready()
        body = {
            "status": "unavailable" if reasons else "ok",
            "model": self._model_id,
            "state": self._lifecycle.state.value,
            "reasons": reasons,
            "busy": self._lifecycle.thread.busy,
            "uptime_seconds": round(self._lifecycle.uptime_seconds, 3),
            "version": __version__,
        }
        return web.json_response(body, status=503 if reasons else 200)

    async def _metrics(self, _: web.Request) -> web.Response:
        body = await self._observed.exposition()
        return web.Response(body=body, headers={"Content-Type": "text/plain; version=0.0.4"})
