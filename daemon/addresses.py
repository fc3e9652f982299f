"""Which reply addresses a daemon uses: those the operator allows, and never Leveret's own queues."""

import re

from daemon.topology import Topology


class Addresses:
    """The policy for `reply_to` (contract, section 3)."""

    def __init__(self, allow: str, topology: Topology) -> None:
        self._allow = re.compile(allow, re.DOTALL)
        self._topology = topology

    def usable(self, address: str | None) -> bool:
        """May replies go to `address`?"""
        return bool(address) and not self._topology.owns(address or "") and bool(self._allow.fullmatch(address or ""))
