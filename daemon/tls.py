"""Why a connect over TLS fails: what certificates, keys or the address have to do with it.

With TLS 1.3 a broker judges the client's certificate only after the handshake (RFC 8446, section 4.4.2.4), when the
client already sends. It closes on what it has not read, and that reset can overtake the alert which says why: with
RabbitMQ on OTP 25 in every second connect (measured). Whoever only listens after the handshake is told every time.
"""

import asyncio
import ssl

from aiormq.connection import Connection, SSLContextProvider, TLSTransportFactory
from aiormq.exceptions import AMQPError
from yarl import URL

ALERT_SECONDS = 3.0
"""How long a second handshake and its alert are waited for; a broker that has nothing to object says nothing."""

_LOST_IN_HANDSHAKE = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError)
_BROKERS_OWN = "TLSV1_ALERT_INTERNAL_ERROR"
"""By RFC 8446, section 6.2, it has nothing to do with the peer: waiting may help."""


def fault_in(error: BaseException) -> OSError | None:
    """What certificates, keys or the address have to do with a failed connect; None where trying again may help."""
    for cause in (error, error.__cause__):
        if isinstance(cause, FileNotFoundError | PermissionError):
            return cause
        if isinstance(cause, ssl.SSLError) and not isinstance(cause, _LOST_IN_HANDSHAKE):
            return None if cause.reason == _BROKERS_OWN else cause
    return None


async def refusal_of(url: str) -> OSError | None:
    """The alert by which the broker refuses this client after a handshake of its own; None where it sends none.

    For a connect whose line was lost, which `url` (`amqps://`) was tried with; nothing is sent, so no reset comes.
    """
    try:
        async with asyncio.timeout(ALERT_SECONDS):
            await _listen(url)
    except (AMQPError, OSError) as error:
        return fault_in(error)
    return None


async def _listen(url: str) -> None:
    """Shake hands as aiormq does, and wait for whatever comes; raises where it is an alert."""
    tried = Connection(url)  # reads the files' names out of the address
    provider = SSLContextProvider(ssl_context=None, ssl_certs=tried.ssl_certs, loop=asyncio.get_running_loop())
    reader, writer = await TLSTransportFactory().create(URL(url), ssl_context_provider=provider)
    try:
        await reader.read(1)
    finally:
        writer.transport.abort()  # an orderly end would wait for the broker's
