"""The topology as a daemon declares it, for tests that declare a queue with one argument changed."""

from typing import Any

from daemon.settings import Settings
from daemon.topology import Topology


def request_queue_arguments(queue: str) -> dict[str, Any]:
    """The arguments of the request queue `queue` under default settings."""
    return dict(Topology.of(Settings(_env_file=None, queue=queue)).queues[queue])
