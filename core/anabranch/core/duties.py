"""The leader's duties: orphans, stuck units, tombstones; each only when it may be due.

Every node keeps these notes, so that a new leader can start at once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from itertools import islice

from anabranch.core.bundles import propose
from anabranch.core.bundles.guards import session_open
from anabranch.core.bundles.propose import Actor, Chooser, NewId, by_count
from anabranch.core.effects import NodeSettings
from anabranch.core.entities.unit import IN_FLIGHT, Unit
from anabranch.core.log.records import SessionChange, UnitMove
from anabranch.core.log.state import StateQueries


class Duties:
    """The times, on this node's own clock, at which the node last saw each thing."""

    def __init__(self, settings: NodeSettings) -> None:
        self._settings = settings
        self._in_flight: dict[str, tuple[int, float]] = {}  # unit -> version, since when seen
        self._orphans_at = math.inf  # the time to look for orphans
        self._monitor_at = math.inf

    def start(self, state: StateQueries, now: float) -> None:
        """The state is complete."""
        self._in_flight = {
            name: (unit.version, now) for name, unit in state.unsettled() if unit.state in IN_FLIGHT
        }
        self._orphans_at = now
        self._monitor_at = now + self._settings.monitor_interval_s

    def configure(self, settings: NodeSettings, now: float) -> None:
        """The settings are these from now on; a shorter interval counts at once."""
        self._settings = settings
        if self._monitor_at < math.inf:
            self._monitor_at = min(self._monitor_at, now + settings.monitor_interval_s)

    def session_ended(self, now: float) -> None:
        self._orphans_at = min(self._orphans_at, now)

    def unit_changed(self, state: StateQueries, name: str, now: float) -> None:
        unit = state.unit(name)
        if unit is None or unit.state not in IN_FLIGHT:
            self._in_flight.pop(name, None)
        elif self._in_flight.get(name, (0, 0.0))[0] != unit.version:
            self._in_flight[name] = (unit.version, now)
        responsible = "" if unit is None else unit.responsible
        if responsible and not session_open(state, responsible):
            # Handed to a broker, or still held by one, whose session ended before this move.
            self._orphans_at = min(self._orphans_at, now)

    def are_due(self, now: float) -> bool:
        """Tells whether the leader may have something to repair."""
        return now >= self._orphans_at or now >= self._monitor_at

    def repairs(
        self,
        state: StateQueries,
        actor: Actor,
        counts: Mapping[str, int],
        now: float,
        log_ms: int,
        new_id: NewId,
        choose: Chooser = by_count,
    ) -> Iterator[UnitMove]:
        """Returns what the leader should propose now, at most one burst of it."""
        burst = self._settings.burst
        if now >= self._orphans_at:
            found = list(islice(propose.orphans(state, actor, counts, new_id, choose), burst))
            # Asked again until there are none: a proposal may lose, or get lost.
            self._orphans_at = now + self._settings.retry_s if found else math.inf
            yield from found
        if now >= self._monitor_at:
            self._monitor_at = now + self._settings.monitor_interval_s
            self._orphans_at = min(self._orphans_at, now)
            yield from islice(
                self._monitored(state, actor, counts, now, log_ms, new_id, choose), burst
            )

    def _monitored(
        self,
        state: StateQueries,
        actor: Actor,
        counts: Mapping[str, int],
        now: float,
        log_ms: int,
        new_id: NewId,
        choose: Chooser,
    ) -> Iterator[UnitMove]:
        unsettled = list(state.unsettled())

        def waited_s(name: str, unit: Unit) -> float:
            version, since = self._in_flight.get(name, (unit.version, now))
            return now - since if version == unit.version else 0.0

        patience_s = self._settings.stuck_after_s
        yield from propose.stuck(unsettled, waited_s, patience_s, actor, counts, new_id, choose)
        delay_ms = round(self._settings.tombstone_delay_s * 1000)
        yield from propose.tombstones(unsettled, log_ms, delay_ms, actor, new_id)


def expiries(
    state: StateQueries,
    actor: Actor,
    silent: Mapping[str, int],
    new_id: NewId,
) -> Iterator[SessionChange]:
    """Ends of the sessions of silent brokers (with the log's time of their last sign of life)."""
    for broker, last_heard_ms in silent.items():
        record = propose.expiry(state, actor, broker, last_heard_ms, new_id())
        if record is not None:
            yield record
