"""Writes `secrets/` for compose.yaml: fresh passwords for the users of deploy/rabbitmq, as hashes for the broker.

    python3 deploy/compose/make_secrets.py

`definitions.json` is what the broker loads, `leveret_amqp_url` the daemon's address; `client_amqp_url` is for your own
services on this host. Existing secrets are kept, for the broker keeps its users in its volume: remove the folder *and*
the volume to begin anew. The files are readable for everyone, since the containers' users are not yours; the folder
is not.
"""

import base64
import hashlib
import json
import secrets
import sys
from pathlib import Path

HERE = Path(__file__).parent
DEFINITIONS = HERE.parent / "rabbitmq" / "definitions.json"
_ADDRESSES = {"leveret-daemon": ("leveret_amqp_url", "rabbitmq"), "leveret-client": ("client_amqp_url", "127.0.0.1")}
"""For each user: the file with its address, and the broker's host as this user sees it."""


def password_hash(password: str) -> str:
    """RabbitMQ's form: base64 of four bytes of salt and the SHA-256 of salt and password."""
    salt = secrets.token_bytes(4)
    return base64.b64encode(salt + hashlib.sha256(salt + password.encode()).digest()).decode()


def make_secrets(target: Path) -> None:
    """Write all files into the new directory `target`. Raises FileExistsError where it is there already."""
    definitions = json.loads(DEFINITIONS.read_text(encoding="utf-8"))
    target.mkdir(mode=0o700)
    for user in definitions["users"]:
        name, password = user["name"], secrets.token_urlsafe(24)
        file, host = _ADDRESSES[name]
        user["password_hash"] = password_hash(password)
        _write(target / file, f"amqp://{name}:{password}@{host}:5672/\n")
    _write(target / "definitions.json", json.dumps(definitions, indent=2) + "\n")


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
    path.chmod(0o444)


if __name__ == "__main__":
    try:
        make_secrets(HERE / "secrets")
    except FileExistsError as error:
        sys.exit(f"{error.filename} is there already; it is kept")
