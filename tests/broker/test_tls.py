"""deploy/rabbitmq/tls on a real broker: TLS only, client certificates, and nobody has a password."""

import json
import shutil
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from private_broker import free_port

from daemon import tls as tls_faults
from daemon.client import Client
from daemon.errors import ConfigurationError
from daemon.link import connect
from tests.support.daemon_process import DaemonProcess
from tests.support.in_process import running_app
from tests.support.rights import DEFINITIONS
from tests.support.scripted_model import write_scripted_model
from tests.support.tcp_proxy import TcpProxy
from tests.support.tls import TlsBroker, expire, make_certificates
from tests.support.wait import wait_until

QUESTION = {"messages": [{"role": "user", "content": "Count."}], "temperature": 0}
CLIENTS = ("leveret-daemon", "leveret-client", "nobody", "expired")


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = make_certificates(tmp_path_factory.mktemp("tls"), "localhost", CLIENTS)
    expire(directory, "expired")
    return directory


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The certificates of an authority that signed nothing here."""
    return make_certificates(tmp_path_factory.mktemp("foreign"), "localhost", ["leveret-daemon"])


@pytest.fixture(scope="module")
def tls(certificates: Path) -> Iterator[TlsBroker]:
    """A node with the shipped configuration and definitions."""
    with TlsBroker(certificates, free_port()) as node:
        node.ctl("import_definitions", str(DEFINITIONS))
        yield node


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_scripted_model(tmp_path / "model", ["one", " two"])


async def test_daemon_and_client_meet_by_certificate_alone(tls: TlsBroker, model: Path) -> None:
    """CA, host name, client certificates and EXTERNAL, with the shipped rights: a request is answered and streamed."""
    daemon = tls.address("leveret-daemon")
    async with (
        running_app(model, amqp_url=daemon, queue="chat.requests", declare=False),
        await Client.connect(tls.address("leveret-client"), user_id="leveret-client") as client,
        await client.stream(QUESTION) as answer,
    ):
        assert "".join([chunk.text async for chunk in answer]) == "one two"


def client_files(directory: Path) -> dict[str, Any]:
    """The daemon's certificate in `directory`, as parameters of an address."""
    return {f"{kind}file": directory / f"leveret-daemon.{end}" for kind, end in (("cert", "pem"), ("key", "key"))}


def refused(tls: TlsBroker, foreign: Path) -> dict[str, str]:
    """Addresses that no certificate makes right, by the reason that must be told."""
    return {
        "CERTIFICATE_VERIFY_FAILED": tls.address("leveret-daemon", cafile=foreign / "ca.pem"),
        "CERTIFICATE_REQUIRED": tls.address(),
        "UNKNOWN_CA": tls.address("leveret-daemon", **client_files(foreign)),
        "CERTIFICATE_EXPIRED": tls.address("expired"),
    }


async def test_a_certificate_that_is_missing_or_refused_ends_the_daemon_with_one_line(
    tls: TlsBroker, model: Path, foreign: Path
) -> None:
    """Exit status 78 and one critical line, no traceback and no retrying: waiting makes no certificate right."""
    started = {
        reason: DaemonProcess(amqp_url=url, queue="chat.requests", declare="false", model=model)
        for reason, url in refused(tls, foreign).items()
    }
    try:
        for reason, daemon in started.items():
            assert await daemon.status(90) == 78, daemon.output
            (line,) = daemon.logged("", level="critical")
            assert "TLS is unusable" in line["event"]
            assert reason in line["event"]
            assert list(daemon.logged("no connection to the broker")) == []
            assert "Traceback" not in json.dumps(daemon.lines)
            assert daemon.errors == ""
    finally:
        for daemon in started.values():
            daemon.close()


async def test_the_reason_is_told_every_time(tls: TlsBroker, foreign: Path) -> None:
    """TLS 1.3 refuses after the handshake, by an alert that the reset of the same line overtakes every other time."""
    for reason, url in refused(tls, foreign).items():
        for _ in range(10):
            with pytest.raises(ConfigurationError, match=f"TLS is unusable.*{reason}"):
                await connect(url)


async def test_a_certificate_that_ends_while_the_daemon_runs_may_be_renewed(
    tls: TlsBroker, certificates: Path, foreign: Path, model: Path, tmp_path: Path
) -> None:
    """Refused at a reconnect: not ready, tried again, and says why; the renewed file is read without a restart."""

    def put(source: Path) -> None:
        for path in client_files(source).values():
            shutil.copy(path, tmp_path)

    put(certificates)
    async with TcpProxy(tls.tls_port) as proxy:
        url = tls.address("leveret-daemon", **client_files(tmp_path)).replace(f":{tls.tls_port}/", f":{proxy.port}/")
        async with running_app(model, amqp_url=url, queue="chat.requests", declare=False) as app:
            put(foreign)
            proxy.reset_all()
            await wait_until(
                lambda: "TLS is unusable" in " ".join(app.lifecycle.not_ready()), description="the reason is shown"
            )
            put(certificates)
            await wait_until(lambda: not app.lifecycle.not_ready(), description="ready again")


def test_an_internal_error_of_the_broker_is_nobodys_certificate() -> None:
    """The one alert that says nothing about the peer: a broker short of memory must not end its daemons for good."""
    error = ssl.SSLError(1, "[SSL: TLSV1_ALERT_INTERNAL_ERROR] tlsv1 alert internal error")
    error.reason = "TLSV1_ALERT_INTERNAL_ERROR"
    assert tls_faults.fault_in(error) is None


async def test_the_host_name_is_checked(tls: TlsBroker) -> None:
    """A certificate of the right authority for another host is somebody in between."""
    with pytest.raises(ConfigurationError, match=r"TLS is unusable.*127\.0\.0\.1"):
        await connect(tls.address("leveret-daemon", host="127.0.0.1"))


async def test_a_certificate_of_no_user_is_refused(tls: TlsBroker) -> None:
    """The common name must be a user's."""
    with pytest.raises(ConfigurationError, match="refuses the credentials"):
        await connect(tls.address("nobody"))


async def test_a_password_is_not_asked_for(tls: TlsBroker) -> None:
    """EXTERNAL is the only way in: a stolen password, or guest's, opens nothing."""
    with pytest.raises(ConfigurationError, match="refuses the credentials"):
        await connect(tls.address("leveret-daemon", auth="PLAIN").replace("amqps://", "amqps://guest:guest@"))


@pytest.mark.parametrize("content", [None, "", "no certificate"])
async def test_unusable_files_are_named_as_such(tls: TlsBroker, tmp_path: Path, content: str | None) -> None:
    """A missing, empty or foreign file ends in a sentence of the operator's, not in a retry loop."""
    path = tmp_path / "client.pem"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ConfigurationError, match="TLS is unusable"):
        await connect(tls.address("leveret-daemon", certfile=path))


async def test_a_plain_broker_is_not_taken_for_a_tls_one(tls: TlsBroker) -> None:
    """`amqps` against the plain port is a wrong address."""
    with pytest.raises(ConfigurationError, match="TLS is unusable"):
        await connect(tls.address("leveret-daemon").replace(f":{tls.tls_port}/", f":{tls.port}/"))
