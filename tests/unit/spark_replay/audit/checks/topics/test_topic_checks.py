"""Scalable topics in the audit: a sound history passes, each planted violation is found."""

from __future__ import annotations

from typing import Any, cast

import pytest
from msgspec.structs import replace

from anabranch.core.log.fold import evolve
from anabranch.core.log.outcome import Outcome
from anabranch.core.log.records import Record, TopicChange
from anabranch.core.log.state import StateReader
from anabranch.core.topics.topic import ScalableTopic, TopicMove
from anabranch.spark_replay.audit.checks.topics.segments import SegmentEnds
from anabranch.spark_replay.audit.tally import CheckName
from support import topic_history as topics
from support.history import BROKERS, History, Rule
from support.local_audit import audited, not_applicable, only, violated, witness
from support.topic_history import ORDERS, Spoil, topic_of, with_part


@pytest.mark.parametrize("parts", [1, 2, 5])
def test_a_sound_history_of_topics_passes_every_check_however_it_is_divided(parts: int) -> None:
    history = topics.topical(rounds=2)
    middle = history.snapshot()
    topics.reshape(history, (topic_of(history).layout.active[0].segment_id,))
    history.beat(BROKERS[0])
    findings = audited(history, parts=parts, snapshot=middle)
    assert violated(findings) == []
    examined = {check.name: check.examined for check in findings.checks}
    assert min(examined[n] for n in (CheckName.LAYOUTS, CheckName.SEALS, CheckName.DRAINING)) > 40
    assert findings.entities == len(history.state.entities)
    assert int(findings.final_digest, 16) == history.state.digest
    assert sum(findings.figures.reshapes.values()) == 19


def test_a_log_that_begins_in_the_middle_of_an_operation_is_replayed_from_the_snapshot() -> None:
    history = topics.topical()
    topics.begin(history, (topic_of(history).layout.active[0].segment_id,))
    taken = history.snapshot()
    topics.commit(history)
    findings = audited(history, snapshot=taken, without_before=taken.horizon.next_offset)
    assert violated(findings) == []
    checks = {check.name: check for check in findings.checks}
    assert "the beginning of the log is gone" in checks[CheckName.SEALS].note


# --- rules that are broken ------------------------------------------------------------------


def spoiled(move: TopicMove, spoil: Spoil) -> Rule:
    """The core's rule, but for what a move makes of its topic."""

    def rule(state: StateReader, record: Record, offset: int, timestamp_ms: int) -> Outcome:
        outcome = evolve(state, record, offset, timestamp_ms)
        if not isinstance(record, TopicChange) or record.move is not move:
            return outcome
        changes = tuple(
            (key, spoil(entity) if isinstance(entity, ScalableTopic) else entity)
            for key, entity in outcome.changes
        )
        return Outcome(outcome.verdict, changes)

    return rule


@pytest.mark.parametrize(
    ("move", "fields", "check", "text"),
    [
        (TopicMove.COMMIT, {"start": 0x5000}, CheckName.LAYOUTS, "covers 4000-4fff"),
        (TopicMove.UPDATE, {"buckets": 2}, CheckName.SEALS, "was 1 and became 2"),
    ],
)
def test_what_a_broken_rule_makes_of_a_layout_is_found(
    move: TopicMove, fields: dict[str, Any], check: CheckName, text: str
) -> None:
    rule = spoiled(move, with_part(3, **fields))
    history = _split(rule)
    history.append(topics.topic_move(history, TopicMove.UPDATE, properties=("a", "b")))
    findings = audited(history, rule=rule)
    assert violated(findings) == [check]
    assert witness(findings, check).startswith(f"{ORDERS}: ")
    assert text in witness(findings, check)


def _split(rule: Rule = evolve) -> History:
    """A topic whose first segment of two is split into 2 and 3."""
    history = topics.created(rule)
    topics.begin(history, (0,))
    topics.commit(history)
    return history


class Unsubscribed:
    """A state that shows nobody's subscription."""

    def __init__(self, state: StateReader) -> None:
        self._state = state

    def subscriptions(self, _topic: str) -> list[Any]:
        return []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._state, name)


def test_a_segment_pruned_before_everybody_had_drained_it_is_found() -> None:
    def lax(state: StateReader, record: Record, offset: int, timestamp_ms: int) -> Outcome:
        if isinstance(record, TopicChange) and record.move is TopicMove.PRUNE:
            state = cast(StateReader, Unsubscribed(state))
        return evolve(state, record, offset, timestamp_ms)

    history = _split(lax)
    topics.subscribe(history)
    topics.subscribe(history, "slow")
    topics.drain(history, (0,))
    topics.prune(history, (0,))
    only(
        history,
        CheckName.DRAINING,
        "slow had not drained segments [0], which PRUNE took away",
        rule=lax,
    )


def test_a_topic_changed_by_someone_who_does_not_hold_its_bundle_is_found() -> None:
    def lax(state: StateReader, record: Record, offset: int, timestamp_ms: int) -> Outcome:
        if isinstance(record, TopicChange):
            record = replace(record, actor=BROKERS[0], session=1)
        return evolve(state, record, offset, timestamp_ms)

    history = _split(lax)
    history.accepted(topics.topic_move(history, TopicMove.UPDATE, by=BROKERS[1]))
    only(
        history,
        CheckName.OWNERSHIP,
        f"topic:{ORDERS}: changed by {BROKERS[1]}, but {BROKERS[0]} held its bundle",
        rule=lax,
    )


# --- left at the end ------------------------------------------------------------------------


def test_sealed_segments_are_judged_only_where_kafka_was_asked() -> None:
    history = _split()
    kafka = SegmentEnds({(ORDERS, 0): (101,)}, {})
    only(history, CheckName.SEGMENTS, "it was sealed at 100 and ends at 101", segment_ends=kafka)
    assert CheckName.SEGMENTS in not_applicable(audited(history))
