"""deploy/rabbitmq/tls on a real broker: TLS only, client certificates, and nobody has a password."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from private_broker import free_port

from daemon.bus import BusUnavailable
from daemon.client import Client
from daemon.errors import ConfigurationError
from daemon.link import connect
from tests.support.daemon_process import DaemonProcess
from tests.support.in_process import running_app
from tests.support.rights import DEFINITIONS
from tests.support.scripted_model import write_scripted_model
from tests.support.tls import TlsBroker, make_certificates

QUESTION = {"messages": [{"role": "user", "content": "Count."}], "temperature": 0}
CLIENTS = ("leveret-daemon", "leveret-client", "nobody")


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_certificates(tmp_path_factory.mktemp("tls"), "localhost", CLIENTS)


@pytest.fixture(scope="module")
def foreign_ca(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The certificate of an authority that signed nothing here."""
    return make_certificates(tmp_path_factory.mktemp("foreign"), "localhost", ["leveret-daemon"]) / "ca.pem"


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


async def test_a_wrong_authority_ends_the_daemon_with_one_line(tls: TlsBroker, model: Path, foreign_ca: Path) -> None:
    """Exit status 78 and one critical line, no traceback and no retrying: waiting makes no certificate right."""
    url = tls.address("leveret-daemon", cafile=foreign_ca)
    daemon = DaemonProcess(amqp_url=url, queue="chat.requests", declare="false", model=model)
    try:
        assert await daemon.status(90) == 78
        (line,) = daemon.logged("", level="critical")
        assert "TLS is unusable" in line["event"]
        assert "CERTIFICATE_VERIFY_FAILED" in line["event"]
        assert "Traceback" not in json.dumps(daemon.lines)
        assert daemon.errors == ""
    finally:
        daemon.close()


async def test_the_host_name_is_checked(tls: TlsBroker) -> None:
    """A certificate of the right authority for another host is somebody in between."""
    with pytest.raises(ConfigurationError, match=r"TLS is unusable.*127\.0\.0\.1"):
        await connect(tls.address("leveret-daemon", host="127.0.0.1"))


async def test_without_a_client_certificate_nobody_gets_in(tls: TlsBroker) -> None:
    """The broker refuses; with TLS 1.3 it does so after the handshake, by a reset that may overtake its reason."""
    with pytest.raises((ConfigurationError, BusUnavailable), match=r"TLS is unusable|connection reset|lost"):
        await connect(tls.address())


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
