"""Kafka's ACLs in memory, for what no real Kafka does when it is asked to: fail at a moment."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

from anabranch.channel.errors import KafkaUnreachableError
from anabranch.core.security.acls import Acl, AclDifference


class MemoryAcls:
    """One Kafka's, for all nodes. Called from threads."""

    def __init__(self, acls: Iterable[Acl] = ()) -> None:
        self.acls = set(acls)
        self.is_away = False
        self.asked = 0
        self.carried_out: list[AclDifference] = []
        self.before_change: Callable[[], None] = lambda: None
        self._lock = threading.Lock()

    def find(self, deadline_s: float) -> frozenset[Acl]:
        with self._lock:
            self._answer()
            self.asked += 1
            return frozenset(self.acls)

    def carry_out(self, change: AclDifference, deadline_s: float) -> None:
        self.before_change()
        with self._lock:
            self._answer()
            self.carried_out.append(change)
            self.acls.update(change.missing)
            self.acls.difference_update(change.surplus)

    def _answer(self) -> None:
        if self.is_away:
            raise KafkaUnreachableError("Kafka did not answer in time")
