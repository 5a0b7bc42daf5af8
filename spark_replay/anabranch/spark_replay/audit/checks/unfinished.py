"""The open matters at the end of the log, of a part and of all, and the checks that judge them.

*Stuck*: no unit and no topic has been in flight for longer than it may. *Orphans*: no unit has long
answered to a broker that is gone. A broker is gone if its session is over. It is gone too if it has
stopped its heartbeats for longer than the liveness time-out while others went on. Either way the
leader had its time to act.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from anabranch.core.entities.cluster import Cluster
from anabranch.core.entities.session import Session
from anabranch.core.entities.unit import IN_FLIGHT, LEADERSHIP, Unit, UnitState
from anabranch.core.log.state import FoldedState
from anabranch.spark_replay.audit.checks.topics.topic_checks import TopicsLeft
from anabranch.spark_replay.audit.tally import CheckTally

LOOSE_MAX: Final = 10_000  # for one part; the counts go on


class UnfinishedUnit(msgspec.Struct, frozen=True):
    """A unit in flight, or one that answers to a broker without an open session."""

    name: str
    state: UnitState
    responsible: str
    since_ms: int
    since_offset: int


class Unfinished(msgspec.Struct):
    """The open matters of one part, or of all of them."""

    in_flight: list[UnfinishedUnit] = []
    orphaned: list[UnfinishedUnit] = []
    answering: dict[str, int] = {}  # broker -> units that it answers for
    sample: dict[str, str] = {}  # broker -> one of them
    units: int = 0
    sessions: dict[str, Session] = {}
    cluster: Cluster | None = None


def unfinished_at_end(
    state: FoldedState, owns: Callable[[str], bool], *, with_sessions: bool
) -> Unfinished:
    """Looks through the state at the end of the log."""
    found = Unfinished()
    for key, entity in state.entities.items():
        if isinstance(entity, Session) and with_sessions:
            found.sessions[key.partition(":")[2]] = entity
        elif isinstance(entity, Cluster) and with_sessions:
            found.cluster = entity
        elif isinstance(entity, Unit) and owns(key):
            _look(found, state, key, entity)
    return found


def _look(found: Unfinished, state: FoldedState, key: str, unit: Unit) -> None:
    found.units += 1
    broker = unit.responsible
    unfinished = UnfinishedUnit(key, unit.state, broker, unit.since_ms, unit.since_offset)
    if unit.state in IN_FLIGHT and len(found.in_flight) < LOOSE_MAX:
        found.in_flight.append(unfinished)
    if not broker:
        return
    found.answering[broker] = found.answering.get(broker, 0) + 1
    if key != LEADERSHIP:
        found.sample.setdefault(broker, key)
    session = state.session(broker)
    if (session is None or not session.open) and len(found.orphaned) < LOOSE_MAX:
        found.orphaned.append(unfinished)


def combined(parts: list[Unfinished]) -> Unfinished:
    """Returns the open matters of the whole log."""
    whole = Unfinished()
    for part in parts:
        whole.in_flight += part.in_flight
        whole.orphaned += part.orphaned
        for broker, count in part.answering.items():
            whole.answering[broker] = whole.answering.get(broker, 0) + count
        whole.sample = part.sample | whole.sample
        whole.units += part.units
        whole.sessions |= part.sessions
        whole.cluster = whole.cluster or part.cluster
    return whole


# --- the checks ------------------------------------------------------------------------------


def check_stuck(
    unfinished: Unfinished, topics: TopicsLeft, log_end_ms: int, patience_ms: int
) -> CheckTally:
    """Checks the end of the log.
    `log_end_ms` is the newest timestamp of the log or of a heartbeat.
    """
    tally = CheckTally(examined=unfinished.units + topics.topics)
    for unit in sorted(unfinished.in_flight, key=lambda unit: unit.since_offset):
        waited_ms = log_end_ms - unit.since_ms
        if waited_ms > patience_ms:
            tally.violate(
                unit.since_offset,
                f"{unit.name}: {unit.state.name} for {waited_ms / 1000:.1f} s, waiting for "
                f"{unit.responsible or 'nobody'}",
            )
    for topic in sorted(topics.unfinished, key=lambda topic: topic.since_offset):
        waited_ms = log_end_ms - topic.since_ms
        if waited_ms > patience_ms:
            tally.violate(
                topic.since_offset,
                f"{topic.name}: {topic.state.name} for {waited_ms / 1000:.1f} s, controlled by "
                f"{topic.controller or 'nobody'}",
            )
    return tally


def check_orphans(
    unfinished: Unfinished, last_beats_ms: Mapping[str, int], log_end_ms: int, patience_ms: int
) -> CheckTally:
    """Checks the end of the log.
    `last_beats_ms` has the log's time of each broker's newest heartbeat.
    """
    tally = CheckTally(examined=unfinished.units)
    for unit in sorted(unfinished.orphaned, key=lambda unit: unit.since_offset):
        session = unfinished.sessions.get(unit.responsible)
        over_ms = max(unit.since_ms, session.since_ms if session else 0)
        if log_end_ms - over_ms > patience_ms:
            tally.violate(
                unit.since_offset,
                f"{unit.name}: {unit.state.name} with {unit.responsible}, whose session has been "
                f"over for {(log_end_ms - over_ms) / 1000:.1f} s",
            )
    timeout_ms = unfinished.cluster.liveness_timeout_ms if unfinished.cluster else 0
    for broker, session in sorted(unfinished.sessions.items()):
        heard_ms = max(last_beats_ms.get(broker, 0), session.since_ms)
        silent_ms = log_end_ms - heard_ms
        count = unfinished.answering.get(broker)
        if not session.open or not count or silent_ms <= timeout_ms + patience_ms:
            continue
        if _someone_else_lives(unfinished.sessions, last_beats_ms, broker, heard_ms + patience_ms):
            tally.violate(
                session.since_offset,
                f"{broker}: answers for {count} units, "
                f"{unfinished.sample.get(broker, 'leadership')} among them, and has been silent "
                f"for {silent_ms / 1000:.1f} s in an open session",
            )
    return tally


def _someone_else_lives(
    sessions: Mapping[str, Session], beats_ms: Mapping[str, int], broker: str, until_ms: int
) -> bool:
    return any(
        other != broker and session.open and beats_ms.get(other, 0) > until_ms
        for other, session in sessions.items()
    )
