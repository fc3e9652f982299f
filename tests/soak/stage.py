"""Two daemons behind a line each, a broker, and everything that can befall them."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from private_broker import PrivateBroker

from tests.soak.clients import World
from tests.support.daemon_process import DaemonProcess
from tests.support.tcp_proxy import TcpProxy
from tests.support.wait import wait_until

RECOVERY_SECONDS = 90.0


@dataclass
class Stage:
    """The `survivor` meets every fault of line and broker, the `victim` is also killed and stopped."""

    broker: PrivateBroker
    line: TcpProxy
    survivor: DaemonProcess
    victim: DaemonProcess
    world: World
    unconfirmed_by_former_victims: float = 0.0

    async def reset(self) -> None:
        """The line breaks."""
        self.line.reset_all()

    async def blackhole(self) -> None:
        """The line is dead for longer than three heartbeats."""
        self.line.blackhole()
        await self.survivor.not_ready()
        self.line.restore()

    async def lose_a_confirm(self) -> None:
        """The broker's answers do not come through; then the line breaks."""
        self.line.mute()
        answered = self.world.answered
        await wait_until(lambda: self.world.answered >= answered + 3, description="answers whose confirm is lost")
        self.line.reset_all()
        self.line.restore()

    async def kill(self) -> None:
        """SIGKILL of a daemon."""
        self.unconfirmed_by_former_victims += self.victim.metric("leveret_replies_unconfirmed_total")
        await asyncio.to_thread(self.victim.kill)
        self.victim.start_again()

    async def stop(self) -> None:
        """An orderly stop of a daemon."""
        self.unconfirmed_by_former_victims += self.victim.metric("leveret_replies_unconfirmed_total")
        self.victim.signal()
        assert await self.victim.status() == 0
        self.victim.start_again()

    async def alarm(self) -> None:
        """The broker blocks publishers."""
        await asyncio.to_thread(self.broker.ctl, "set_vm_memory_high_watermark", "0")
        await asyncio.to_thread(self.broker.ctl, "set_vm_memory_high_watermark", "0.4")

    async def crash(self) -> None:
        """The broker is killed and starts again."""
        await asyncio.to_thread(self.broker.sync)
        await self._restart(self.broker.kill)

    async def shut_down(self) -> None:
        """The broker is stopped in good order and starts again."""
        await self._restart(self.broker.terminate)

    async def _restart(self, end: Callable[[], None]) -> None:
        await asyncio.to_thread(end)
        await asyncio.to_thread(self.broker.start)
        self.world.incarnation += 1

    async def recover(self) -> None:
        """Wait until both daemons are ready and answer again."""
        for daemon in (self.survivor, self.victim):
            await daemon.ready(RECOVERY_SECONDS)
        answered = self.world.answered
        await wait_until(
            lambda: self.world.answered >= answered + 5, description="work goes on", timeout_seconds=RECOVERY_SECONDS
        )

    @property
    def unconfirmed(self) -> float:
        """Replies whose confirm was lost, so far as the daemons could count."""
        living = (daemon.metric("leveret_replies_unconfirmed_total") for daemon in (self.survivor, self.victim))
        return self.unconfirmed_by_former_victims + sum(living)


Fault = Callable[[Stage], Awaitable[None]]
QUICK: tuple[Fault, ...] = (Stage.reset, Stage.kill, Stage.lose_a_confirm, Stage.stop, Stage.alarm, Stage.reset)
ALL: tuple[Fault, ...] = (*QUICK, Stage.blackhole, Stage.crash, Stage.shut_down)
