"""Version continuity: the version of a key counts up by one with every accepted record.

It starts at 1. Some things can be deleted and created again: tenants, namespaces, their units,
scalable topics, subscriptions, archives, placement policies, overrides of settings, permissions.
Theirs start at their place in the log, so that versions are above those of any earlier thing of
that name. A topic's PRUNE may take marks from its subscriptions, but makes no version of them.
"""

from __future__ import annotations

from typing import Final

from anabranch.core.entities.archive import Archive
from anabranch.core.entities.override import SettingOverride
from anabranch.core.entities.permission import Permission
from anabranch.core.entities.placement_policy import PlacementPolicy
from anabranch.core.entities.subscription import Subscription
from anabranch.core.entities.tenant import NamespaceInfo, Tenant
from anabranch.core.entities.topic import ScalableTopic
from anabranch.core.entities.unit import LEADERSHIP, Unit
from anabranch.core.log.outcome import Outcome
from anabranch.core.log.records import Record
from anabranch.core.log.state import Change, Entity
from anabranch.core.log.verdicts import Verdict
from anabranch.spark_replay.audit.tally import CheckTally

_BORN: Final = (
    Unit,
    Tenant,
    NamespaceInfo,
    ScalableTopic,
    Subscription,
    Archive,
    PlacementPolicy,
    SettingOverride,
    Permission,
)


class Versions:
    """Follows the version of every key through the accepted records."""

    def __init__(self) -> None:
        self.tally = CheckTally()
        self._versions: dict[str, int] = {}

    def start(self, key: str, entity: Entity) -> None:
        """Begins a replay from a snapshot with this entity."""
        self._versions[key] = entity.version

    def accepted(self, offset: int, record: Record, changes: tuple[Change, ...]) -> None:
        """Checks the changes of an accepted record to its keys."""
        self.tally.examined += 1
        versions = self._versions
        own = record.key
        if record.version != versions.get(own, 0) + 1:
            self._violate(offset, own, record.version)
        for key, entity in changes:
            if entity is None:
                versions.pop(key, None)
                continue
            expected = versions.get(key, 0) + 1
            if expected == 1 and key != LEADERSHIP and type(entity) in _BORN:
                expected = offset + 1
            elif key != own and type(entity) is Subscription:
                expected -= 1
            if entity.version != expected:
                self._violate(offset, key, entity.version)
            versions[key] = entity.version

    def rejected(self, offset: int, record: Record, outcome: Outcome) -> None:
        """Checks that a rejected record changes nothing."""
        if outcome.changes:
            self.tally.violate(
                offset,
                f"{record.key}: rejected as {Verdict(outcome.verdict).name}, yet it changed "
                f"{len(outcome.changes)} keys",
            )

    def _violate(self, offset: int, key: str, version: int) -> None:
        before = self._versions.get(key, 0)
        self.tally.violate(
            offset,
            f"{key}: version {version} was accepted where version {before + 1} comes next",
        )
