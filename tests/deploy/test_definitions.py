"""deploy/rabbitmq as files: the topology is the daemon's own, the limits fit its settings."""

import json
import re
from pathlib import Path
from typing import Any

from daemon.settings import Settings
from daemon.topology import Topology

HERE = Path(__file__).parents[2] / "deploy" / "rabbitmq"
SETTINGS = Settings(_env_file=None)
TOPOLOGY = Topology.of(SETTINGS)


def load(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((HERE / name).read_text())
    return loaded


def test_queues_exchanges_and_binding_are_the_daemons() -> None:
    """Other arguments than the daemon declares would make every start with DECLARE=true end with status 78."""
    shipped = load("definitions.json")
    assert {queue["name"]: queue["arguments"] for queue in shipped["queues"]} == TOPOLOGY.queues
    assert {exchange["name"] for exchange in shipped["exchanges"]} == {TOPOLOGY.dlx, TOPOLOGY.cancel}
    assert {exchange["type"] for exchange in shipped["exchanges"]} == {"fanout"}
    assert all(thing["durable"] for thing in shipped["queues"] + shipped["exchanges"])
    assert [(b["source"], b["destination"]) for b in shipped["bindings"]] == [(TOPOLOGY.dlx, TOPOLOGY.dead)]


def test_no_password_is_shipped() -> None:
    """A password in a public file is no password; with an empty hash RabbitMQ lets nobody in by password."""
    assert {user["password_hash"] for user in load("definitions.json")["users"]} == {""}


def test_the_delivery_timeout_covers_the_longest_delivery() -> None:
    """A timeout below the longest request takes the consumer away in the middle of an answer."""
    (policy,) = load("policy-delivery-timeout.json")["policies"]
    longest_seconds = SETTINGS.max_seconds + SETTINGS.drain_seconds
    assert policy["definition"]["consumer-timeout"] > 2 * 1000 * longest_seconds
    assert [name for name in TOPOLOGY.queues if re.search(policy["pattern"], name)] == ["chat.dead", "chat.requests"]
