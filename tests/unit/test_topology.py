"""Names, arguments, reply addresses, and the sentence for a refused declare."""

import pytest
from aiormq.exceptions import ChannelAccessRefused, ChannelNotFoundEntity, ChannelPreconditionFailed

from daemon.addresses import Addresses
from daemon.settings import Settings
from daemon.topology import Topology, explain

TOPOLOGY = Topology.of(Settings(_env_file=None))


@pytest.mark.parametrize(
    ("address", "usable"),
    [
        ("answers", True),
        ("amq.gen-JzTY20BRgKO-HjmUJj0wLg", True),
        ("amq.rabbitmq.reply-to.g1h2AA==", True),
        ("amq_0123abcd", True),
        ("with\nnewline", True),
        (None, False),
        ("", False),
        ("amq.rabbitmq.reply-to", False),
        ("amq.direct", False),
        ("chat.requests", False),
        ("chat.dead", False),
        ("chat.parked", False),
        ("chat.cancel.host-1.1f", False),
    ],
)
def test_replies_go_only_where_they_may(address: str | None, usable: bool) -> None:  # noqa: FBT001
    """A reply to Leveret's own queue would be a loop; one to `amq.` names is somebody else's."""
    assert Addresses(Settings(_env_file=None).reply_to_allow, TOPOLOGY).usable(address) is usable


def test_own_queues_stay_forbidden_whatever_the_operator_allows() -> None:
    """REPLY_TO_ALLOW=.* must not open a loop."""
    open_to_all = Addresses(".*", TOPOLOGY)
    assert open_to_all.usable("amq.direct")
    assert not open_to_all.usable("chat.requests")


def test_a_full_match_is_demanded() -> None:
    """A pattern that matches only the beginning must not admit the rest."""
    assert not Addresses("svc", TOPOLOGY).usable("svc.evil")


def test_the_arguments_are_the_contracts() -> None:
    """Other daemons, clients and the shipped definitions declare the same ones."""
    assert TOPOLOGY.queues["chat.requests"] == {
        "x-queue-type": "quorum",
        "x-delivery-limit": 10,
        "x-max-length": 1000,
        "x-overflow": "reject-publish",
        "x-dead-letter-exchange": "chat.dlx",
        "x-dead-letter-strategy": "at-least-once",
    }
    assert "x-max-length" not in TOPOLOGY.queues["chat.dead"]
    assert TOPOLOGY.queues["chat.dead"]["x-dead-letter-routing-key"] == "chat.parked"
    assert TOPOLOGY.queues["chat.parked"]["x-max-length"] == 10_000


def test_other_arguments_are_named_with_both_values() -> None:
    """The operator must see which argument, what it is and what it should be."""
    error = ChannelPreconditionFailed(
        "PRECONDITION_FAILED - inequivalent arg 'x-max-length' for queue 'chat.requests' in vhost '/': "
        "received the value '1000' of type 'signedint' but current is the value '5' of type 'signedint'"
    )
    said = str(explain(error))
    assert "'chat.requests' exists with x-max-length = 5, wanted 1000" in said


def test_refused_rights_and_missing_queues_are_set_up_errors_and_others_are_not() -> None:
    """A fault that may pass must be retried, not end the process."""
    assert "refuses a right" in str(explain(ChannelAccessRefused("ACCESS_REFUSED - read access to queue")))
    assert "LEVERET_DECLARE" in str(explain(ChannelNotFoundEntity("NOT_FOUND - no queue 'chat.requests'")))
    assert explain(RuntimeError("no leader")) is None
