"""The secrets that compose.yaml needs, on a real broker."""

import importlib.util
import json
import stat
from pathlib import Path
from types import ModuleType

import aio_pika
import pytest
from private_broker import PrivateBroker
from yarl import URL

COMPOSE = Path(__file__).parents[2] / "deploy" / "compose"


@pytest.fixture
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_secrets", COMPOSE / "make_secrets.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


async def test_the_broker_takes_the_definitions_and_the_users_get_in(
    broker: PrivateBroker, script: ModuleType, tmp_path: Path
) -> None:
    """A hash in the wrong form is imported without complaint, and nobody gets in."""
    secrets = tmp_path / "secrets"
    script.make_secrets(secrets)
    definitions = json.loads((secrets / "definitions.json").read_text())
    users = tmp_path / "users.json"
    users.write_text(json.dumps({name: definitions[name] for name in ("vhosts", "users", "permissions")}))
    broker.ctl("import_definitions", str(users))
    for file in ("leveret_amqp_url", "client_amqp_url"):
        url = URL((secrets / file).read_text().strip()).with_host("127.0.0.1").with_port(broker.port)
        connection = await aio_pika.connect(str(url), timeout=10)
        await connection.close()
    for user in definitions["users"]:
        broker.ctl("delete_user", user["name"])


def test_secrets_are_made_once_and_are_private(script: ModuleType, tmp_path: Path) -> None:
    """New passwords would lock the daemons out: the broker keeps its users in its volume."""
    secrets = tmp_path / "secrets"
    script.make_secrets(secrets)
    assert stat.S_IMODE(secrets.stat().st_mode) == 0o700
    before = {path.name: path.read_text() for path in secrets.iterdir()}
    assert set(before) == {"definitions.json", "leveret_amqp_url", "client_amqp_url"}
    with pytest.raises(FileExistsError):
        script.make_secrets(secrets)
    assert {path.name: path.read_text() for path in secrets.iterdir()} == before
