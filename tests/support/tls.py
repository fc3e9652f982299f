"""A private broker as deploy/rabbitmq/tls configures it, and certificates of the shipped script."""

import subprocess
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlencode

from private_broker import PrivateBroker

HERE = Path(__file__).parents[2] / "deploy" / "rabbitmq" / "tls"
PLUGIN = "rabbitmq_auth_mechanism_ssl"


def make_certificates(directory: Path, host: str, clients: Sequence[str]) -> Path:
    """Run the shipped script; returns the directory."""
    subprocess.run([HERE / "make_certificates.sh", directory, host, *clients], check=True, capture_output=True)
    return directory


def expire(directory: Path, client: str) -> None:
    """Sign the client's certificate anew, to have ended yesterday."""
    names = {"csr": f"{client}.csr", "key": f"{client}.key", "pem": f"{client}.pem"}
    request = "x509 -x509toreq -in {pem} -signkey {key} -out {csr}".format_map(names)
    sign = "x509 -req -in {csr} -CA ca.pem -CAkey ca.key -CAcreateserial -days -1 -out {pem}".format_map(names)
    for arguments in (request, sign):
        subprocess.run(["openssl", *arguments.split()], cwd=directory, check=True, capture_output=True)


class TlsBroker(PrivateBroker):
    """A node with the shipped configuration, and a plain listener beside it that lets nobody in but tells its state."""

    def __init__(self, certificates: Path, tls_port: int) -> None:
        self.tls_port = tls_port
        self._certificates = certificates
        super().__init__("tls", config=self._config(), plugins=(PLUGIN,))

    def _config(self) -> str:
        """The shipped file with this machine's paths and ports."""
        text = (HERE / "rabbitmq.conf").read_text()
        changes = {
            "/etc/rabbitmq/tls": str(self._certificates),
            "listeners.tcp = none\n": "",
            "listeners.ssl.default = 5671": f"listeners.ssl.default = {self.tls_port}",
        }
        for shipped, here in changes.items():
            assert shipped in text, f"{shipped!r} is no longer in the shipped rabbitmq.conf"
            text = text.replace(shipped, here)
        return text

    def address(self, client: str | None = None, *, host: str = "localhost", **query: object) -> str:
        """An `amqps` address, with the certificate of `client` and EXTERNAL; `query` adds and overrides parameters."""
        parameters: dict[str, object] = {"cafile": self._certificates / "ca.pem"}
        if client is not None:
            key, certificate = (self._certificates / f"{client}.{kind}" for kind in ("key", "pem"))
            parameters |= {"certfile": certificate, "keyfile": key, "auth": "EXTERNAL"}
        return f"amqps://{host}:{self.tls_port}/?{urlencode(parameters | query)}"
