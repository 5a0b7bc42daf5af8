"""Orphans: at the end of the log no unit has long answered to a broker that is gone.

A broker is gone if its session is over. It is gone too if it has stopped its heartbeats for longer
than the liveness time-out while others went on. Either way the leader had its time to act.
"""

from __future__ import annotations

from collections.abc import Mapping

from anabranch.core.entities.session import Session
from anabranch.spark_replay.audit.checks.unfinished import Unfinished
from anabranch.spark_replay.audit.tally import CheckTally


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
