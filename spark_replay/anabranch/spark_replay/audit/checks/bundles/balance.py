"""Automatic moves: to brokers that the policies allow, not too soon again, and with a reason.

The policies are those at the move's place in the log. The chooser had read up to some place before
it, so a destination that they allowed until a moment ago counts as allowed. The log does not tell
which primary brokers of an isolation policy were there, so secondary ones are never called wrong.
Anti-affinity groups forbid nothing, they only prefer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from anabranch.core.entities.placement_policy import PlacementPolicy, PolicyKind, policy_key
from anabranch.core.entities.unit import Move
from anabranch.core.log.grounds import WEIGHED_MAX, strategy_of
from anabranch.core.log.records import Cause, PlacementPolicyChange, UnitMove
from anabranch.core.log.state import Change, Entity
from anabranch.core.policies.patterns import matches
from anabranch.core.ring import split_bundle_name
from anabranch.spark_replay.audit.tally import CheckTally

AUTOMATIC_FROM: Final = int(Cause.BALANCE)  # the causes from here on are the balancer's
_RACE_MS: Final = 10_000  # a choice may have been under way for so long
_ROUNDING: Final = 1e-9
_ISOLATION: Final = policy_key(PolicyKind.ISOLATION, "")
_UNLOADS: Final = (Cause.OVERLOADED, Cause.UNDERLOADED)
_SPLITS: Final = (Cause.TOPICS, Cause.SESSIONS, Cause.MSG_RATE, Cause.BANDWIDTH)

_Policies = Mapping[str, PlacementPolicy]  # isolation policies by key


class Balance:
    """Follows isolation policies, and the time of each bundle's last move by the balancer."""

    def __init__(self, tolerance_ms: int) -> None:
        self.destinations = CheckTally()
        self.moves = CheckTally()
        self._tolerance_ms = tolerance_ms
        self._policies: dict[str, PlacementPolicy] = {}
        self._former: list[tuple[int, _Policies]] = []  # with the time until which they stood
        self._moved: dict[str, tuple[int, int]] = {}  # the time of a bundle's move, and its grace

    def start(self, key: str, entity: Entity) -> None:
        """Begins a replay from a snapshot with this entity."""
        if isinstance(entity, PlacementPolicy) and key.startswith(_ISOLATION):
            self._policies[key] = entity

    def shared(
        self, timestamp_ms: int, record: PlacementPolicyChange, changes: tuple[Change, ...]
    ) -> None:
        """Takes an accepted record on a placement policy."""
        if record.kind is not PolicyKind.ISOLATION:
            return
        self._former.append((timestamp_ms, dict(self._policies)))
        for key, entity in changes:
            if isinstance(entity, PlacementPolicy):
                self._policies[key] = entity
            else:
                self._policies.pop(key, None)

    def moved(self, offset: int, timestamp_ms: int, record: UnitMove) -> None:
        """Checks an accepted move of a bundle that has an automatic cause or the grounds of a
        choice.
        """
        if record.choice and record.broker:
            self.destinations.examined += 1
            wrong = self._unfit(timestamp_ms, record)
            if wrong:
                self.destinations.violate(
                    offset, f"{record.unit}: {record.move.name} to {record.broker}, {wrong}"
                )
        if record.cause >= AUTOMATIC_FROM:
            self.moves.examined += 1
            for wrong in self._faults(timestamp_ms, record):
                own = strategy_of(record.choice[0].rule) if record.choice else ""
                by = f", by strategy {own}" if own else ""
                self.moves.violate(offset, f"{record.unit}: {record.move.name}{by} {wrong}")

    # --- destinations -------------------------------------------------------------------

    def _unfit(self, timestamp_ms: int, record: UnitMove) -> str:
        """Returns the fault of the destination, or of the record's words about it, "" for none."""
        if len(record.choice) > 1:
            return f"which rests on {len(record.choice)} choices, where one makes a destination"
        count = len(record.choice[0].weighed)
        if count > WEIGHED_MAX:
            return f"with {count} brokers weighed, where a record has room for {WEIGHED_MAX}"
        for weighed in record.choice[0].weighed:
            if weighed.broker == record.broker and weighed.removed_by:
                return f"though {weighed.removed_by} had removed it"
        namespace, _ = split_bundle_name(record.unit)
        wrong = _forbidden(self._policies, namespace, record.broker)
        if not wrong:
            return ""
        oldest_ms = timestamp_ms - _RACE_MS
        self._former = [each for each in self._former if each[0] >= oldest_ms]
        allowed = any(
            not _forbidden(policies, namespace, record.broker) for _, policies in self._former
        )
        return "" if allowed else wrong

    # --- moves --------------------------------------------------------------------------

    def _faults(self, timestamp_ms: int, record: UnitMove) -> list[str]:
        if record.move is Move.SPLIT:
            known = record.cause in _SPLITS
            return [] if known else [f"by the balancer gives {record.cause.name} as its reason"]
        if record.move is not Move.RELEASE:
            return []
        faults = []
        if record.cause not in _UNLOADS:
            faults.append(f"by the balancer gives {record.cause.name} as its reason")
        if not record.choice or not record.choice[0].rule:
            return [*faults, "by the balancer does not say what it rested on"]
        grounds = record.choice[0]
        # A strategy of one's own may have another aim.
        is_own = strategy_of(grounds.rule) != ""
        if not is_own and 0 <= grounds.deviation + _ROUNDING < grounds.predicted:
            faults.append(
                f"was to make the deviation {grounds.predicted:.3f}, where it was "
                f"{grounds.deviation:.3f}"
            )
        moved_ms, grace_ms = self._moved.get(record.unit, (0, 0))
        # The setting may have changed between both.
        early_ms = moved_ms + min(grace_ms, grounds.grace_ms) - timestamp_ms
        if early_ms > self._tolerance_ms:
            faults.append(f"came {early_ms} ms before the grace period of the last one was over")
        self._moved[record.unit] = (timestamp_ms, grounds.grace_ms)
        return faults


def _forbidden(policies: _Policies, namespace: str, broker: str) -> str:
    """Returns the policy that keeps a namespace's bundles from a broker, in words, "" for none."""
    host = broker.rpartition(":")[0]
    for key in sorted(policies):
        policy = policies[key]
        if _any_matches(policy.namespaces, namespace):
            theirs = (*policy.primary, *policy.secondary)
            if _any_matches(theirs, host) or _any_matches(theirs, broker):
                return ""
            return f"which is no broker of isolation policy {key.removeprefix(_ISOLATION)}"
    for key in sorted(policies):
        if _any_matches(policies[key].primary, host):
            name = key.removeprefix(_ISOLATION)
            return f"which isolation policy {name} has for other namespaces"
    return ""


def _any_matches(patterns: tuple[str, ...], text: str) -> bool:
    return any(matches(pattern, text) for pattern in patterns)
