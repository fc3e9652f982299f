"""deploy/rabbitmq's definitions on a private broker, and users that lack one right."""

import base64
import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from private_broker import PrivateBroker

DEFINITIONS = Path(__file__).parents[2] / "deploy" / "rabbitmq" / "definitions.json"
PASSWORD = "a-test-password"  # noqa: S105 - of users on a throw-away broker


@dataclass(frozen=True)
class Lacking:
    """A user with the rights of `role` but one: `kind` (configure, write, read) on what matches `missing`."""

    role: str
    kind: str
    missing: str
    permissions: dict[str, str]

    @property
    def user(self) -> str:
        """The user's name."""
        digest = hashlib.sha256(f"{self.role}{self.kind}{self.missing}".encode()).hexdigest()
        return f"lacking-{digest[:12]}"

    def __str__(self) -> str:
        return f"{self.role} without {self.kind} of {self.missing}"


def lacking() -> Iterator[Lacking]:
    """Every user that lacks exactly one of the rights that the definitions grant."""
    for granted in json.loads(DEFINITIONS.read_text())["permissions"]:
        permissions = {kind: granted[kind] for kind in ("configure", "write", "read")}
        for kind, pattern in permissions.items():
            rights = pattern.removeprefix("^(").removesuffix(")$").split("|")
            for right in rights:
                rest = "|".join(other for other in rights if other != right)
                yield Lacking(granted["user"], kind, right, permissions | {kind: f"^({rest})$"})


def load_definitions(broker: PrivateBroker) -> None:
    """Import the shipped definitions as they are, then give passwords to the users and add those that lack a right."""
    broker.ctl("import_definitions", str(DEFINITIONS))
    users = [_user(user["name"]) for user in json.loads(DEFINITIONS.read_text())["users"]]
    users += [_user(one.user) for one in lacking()]
    permissions = [{"user": one.user, "vhost": "/"} | one.permissions for one in lacking()]
    extra = broker.directory / "test-users.json"
    extra.write_text(json.dumps({"users": users, "permissions": permissions}))
    broker.ctl("import_definitions", str(extra))


def url_of(broker: PrivateBroker, user: str) -> str:
    """The broker's address for `user`."""
    return f"amqp://{user}:{PASSWORD}@127.0.0.1:{broker.port}/"


def _user(name: str) -> dict[str, Any]:
    """A user with the password, hashed as RabbitMQ stores it: the salt, then SHA-256 of salt and password."""
    salt = os.urandom(4)
    hashed = base64.b64encode(salt + hashlib.sha256(salt + PASSWORD.encode()).digest()).decode()
    return {"name": name, "password_hash": hashed, "hashing_algorithm": "rabbit_password_hashing_sha256", "tags": ""}
