"""Scalable topics in the audit: a sound history passes, each planted violation is found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from anabranch.core.log.fold import evolve
from anabranch.core.log.outcome import Outcome
from anabranch.core.log.records import Record, SubscriptionChange, TopicChange
from anabranch.core.log.state import StateReader
from anabranch.core.topics.segment import SegmentInfo
from anabranch.core.topics.topic import ScalableTopic, TopicMove, TopicState
from anabranch.spark_replay.audit.checks.topics.segments import SegmentEnds
from anabranch.spark_replay.audit.tally import CheckName
from anabranch.spark_replay.audit.verdict import CheckResult
from support.history import BROKERS, History, Rule
from support.local_audit import audited, violated, witness
from support.topic_history import (
    BILLING,
    ORDERS,
    begin,
    commit,
    create,
    drain,
    prune,
    reshape,
    subscribe,
    topic_move,
    topic_of,
    topical,
)

replace = msgspec.structs.replace


@pytest.mark.parametrize("parts", [1, 2, 5])
def test_a_sound_history_of_topics_passes_every_check_however_it_is_divided(parts: int) -> None:
    history = topical(rounds=2)
    middle = history.snapshot()
    reshape(history, (topic_of(history).layout.active[0].segment_id,))
    history.beat(BROKERS[0])
    findings = audited(history, parts=parts, snapshot=middle)
    assert violated(findings) == []
    examined = {check.name: check.examined for check in findings.checks}
    assert min(examined[n] for n in (CheckName.LAYOUTS, CheckName.SEALS, CheckName.DRAINING)) > 40
    assert findings.entities == len(history.state.entities)
    assert int(findings.final_digest, 16) == history.state.digest
    assert sum(findings.figures.reshapes.values()) == 19


@pytest.mark.parametrize("step", [TopicMove.BEGIN, TopicMove.SEALING])
def test_a_log_that_begins_in_the_middle_of_an_operation_is_replayed_from_the_snapshot(
    step: TopicMove,
) -> None:
    history = topical()
    begin(history, (topic_of(history).layout.active[0].segment_id,))
    if step is TopicMove.SEALING:
        history.accepted(topic_move(history, TopicMove.SEALING))
    taken = history.snapshot()
    if step is TopicMove.SEALING:
        topic = topic_of(history)
        buckets = topic.layout.segment(topic.parents[0]).buckets
        history.accepted(topic_move(history, TopicMove.COMMIT, end_offsets=(7,) * buckets))
    else:
        commit(history)
    findings = audited(history, snapshot=taken, without_before=taken.horizon.next_offset)
    assert violated(findings) == []
    checks = {check.name: check for check in findings.checks}
    assert "the beginning of the log is gone" in checks[CheckName.SEALS].note


# --- rules that are broken ------------------------------------------------------------------


def spoiled(move: TopicMove, spoil: Callable[[ScalableTopic], ScalableTopic]) -> Rule:
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


def with_part(segment_id: int, **fields: Any) -> Callable[[ScalableTopic], ScalableTopic]:
    """Another form of one segment."""

    def spoil(topic: ScalableTopic) -> ScalableTopic:
        parts = tuple(
            replace(part, **fields) if part.segment_id == segment_id else part
            for part in topic.segments
        )
        return replace(topic, segments=parts)

    return spoil


@pytest.mark.parametrize(
    ("move", "spoil", "check", "text"),
    [
        # Segments 0 and 1 are the first ones; 0 is split into 2 and 3, 2 into 4 and 5.
        (
            TopicMove.COMMIT,
            with_part(3, start=0x5000),
            CheckName.LAYOUTS,
            "no active segment covers 4000-4fff",
        ),
        (
            TopicMove.COMMIT,
            with_part(2, end=0x4000),
            CheckName.LAYOUTS,
            "more than one active segment covers 4000: 4000-7fff-3",
        ),
        (
            TopicMove.COMMIT,
            with_part(2, parent_ids=(3,)),
            CheckName.LAYOUTS,
            "segment 0 names 2 as its child, which does not name it as parent",
        ),
        (
            TopicMove.COMMIT,
            with_part(2, parent_ids=(0, 1)),
            CheckName.LAYOUTS,
            "segment 2 names 1 as its parent, which does not name it as child",
        ),
        (
            TopicMove.OPEN,
            with_part(0, parent_ids=(1,)),
            CheckName.LAYOUTS,
            "segment 0 names 1 as its parent",
        ),
        (
            TopicMove.COMMIT,
            lambda topic: replace(topic, next_segment_id=3),
            CheckName.LAYOUTS,
            "segment 3 exists, but 3 is the next id",
        ),
        (
            TopicMove.COMMIT,
            with_part(0, end_offsets=(99,)),
            CheckName.SEALS,
            "segment 0 has 1 partitions and ends (99,); its COMMIT says (100,)",
        ),
        (
            TopicMove.UPDATE,
            with_part(0, end_offsets=(101,)),
            CheckName.SEALS,
            "the end_offsets of sealed segment 0 was (100,) and became (101,)",
        ),
        (
            TopicMove.UPDATE,
            with_part(1, buckets=2),
            CheckName.SEALS,
            "the buckets of active segment 1 was 1 and became 2",
        ),
        (
            TopicMove.ABORT,
            lambda topic: replace(topic, segments=topic.segments + topic.garbage),
            CheckName.SEALS,
            "ABORT made segment 4",
        ),
    ],
)
def test_what_a_broken_rule_makes_of_a_layout_is_found(
    move: TopicMove, spoil: Callable[[ScalableTopic], ScalableTopic], check: CheckName, text: str
) -> None:
    rule = spoiled(move, spoil)
    history = _split(rule)
    history.append(topic_move(history, TopicMove.UPDATE, properties=("a", "b")))
    begin(history, (1,))
    history.append(topic_move(history, TopicMove.ABORT))
    findings = audited(history, rule=rule)
    assert check in violated(findings)
    assert set(violated(findings)) <= {check, CheckName.LAYOUTS}  # some make a hole as well
    assert f"{ORDERS}: " in witness(findings, check)
    assert text in witness(findings, check)


def _split(rule: Rule = evolve) -> History:
    """A topic whose first segment of two is split into 2 and 3."""
    history = History(rule)
    history.found()
    create(history)
    begin(history, (0,))
    commit(history)
    return history


class Seen:
    """A state that shows something else than it holds."""

    def __init__(self, state: StateReader, **answers: Any) -> None:
        self._state = state
        self._answers = answers

    def __getattr__(self, name: str) -> Any:
        return self._answers.get(name) or getattr(self._state, name)


def seen(concerns: Callable[[Record], bool], **shows: Callable[[StateReader, Any], Any]) -> Rule:
    """The core's rule, which sees something else when it judges some records."""

    def rule(state: StateReader, record: Record, offset: int, timestamp_ms: int) -> Outcome:
        if concerns(record):
            answers = {name: _shown(show, state) for name, show in shows.items()}
            state = Seen(state, **answers)
        return evolve(state, record, offset, timestamp_ms)

    return rule


def _shown(show: Callable[[StateReader, Any], Any], state: StateReader) -> Callable[..., Any]:
    return lambda *names: show(state, names)


def _is_commit(record: Record) -> bool:
    return isinstance(record, TopicChange) and record.move is TopicMove.COMMIT


def _is_prune(record: Record) -> bool:
    return isinstance(record, TopicChange) and record.move is TopicMove.PRUNE


def _is_subscription(record: Record) -> bool:
    return isinstance(record, SubscriptionChange)


def _as_if_sealing(state: StateReader, names: tuple[str, ...]) -> ScalableTopic | None:
    topic = state.topic(*names)
    preparing = topic is not None and topic.state is TopicState.PREPARING
    return replace(topic, state=TopicState.SEALING) if topic is not None and preparing else topic


def _as_if_rootless(state: StateReader, names: tuple[str, ...]) -> ScalableTopic | None:
    topic = state.topic(*names)
    if topic is None:
        return None
    return replace(topic, segments=tuple(map(_rootless, topic.segments)))


def _rootless(part: SegmentInfo) -> SegmentInfo:
    return replace(part, parent_ids=())


def test_a_commit_without_the_point_of_no_return_is_found() -> None:
    rule = seen(_is_commit, topic=_as_if_sealing)
    history = _split(rule)
    begin(history, (1,))
    history.accepted(topic_move(history, TopicMove.COMMIT, end_offsets=(5,)))
    findings = audited(history, rule=rule)
    assert violated(findings) == [CheckName.SEALS]
    assert "COMMIT without SEALING" in witness(findings, CheckName.SEALS)


def test_a_child_that_nobody_had_announced_is_found() -> None:
    rule = spoiled(TopicMove.BEGIN, _renumbered)
    findings = audited(_split(rule), rule=rule)
    assert violated(findings) == [CheckName.SEALS]
    seals = next(check for check in findings.checks if check.name is CheckName.SEALS)
    texts = [found.text for found in seals.witnesses]
    assert f"{ORDERS}: segment 7 became active, but no BEGIN had named it" in texts


def _renumbered(topic: ScalableTopic) -> ScalableTopic:
    others = tuple(replace(part, segment_id=part.segment_id + 5) for part in topic.children)
    return replace(topic, children=others, next_segment_id=20)


def test_a_segment_pruned_before_everybody_had_drained_it_is_found() -> None:
    rule = seen(_is_prune, subscriptions=lambda state, names: [])
    history = _split(rule)
    subscribe(history)
    subscribe(history, "slow")
    drain(history, (0,))
    prune(history, (0,))
    findings = audited(history, rule=rule)
    assert violated(findings) == [CheckName.DRAINING]
    assert "slow had not drained segments [0], which PRUNE took away" in witness(
        findings, CheckName.DRAINING
    )


def test_a_segment_drained_before_what_is_above_it_is_found() -> None:
    rule = seen(_is_subscription, topic=_as_if_rootless)
    history = _split(rule)
    subscribe(history)
    reshape(history, (2,))
    drain(history, (2,))
    findings = audited(history, rule=rule)
    assert violated(findings) == [CheckName.DRAINING]
    assert "segment 2 is called drained before segments [0] above it" in witness(
        findings, CheckName.DRAINING
    )


def test_a_topic_changed_by_someone_who_does_not_hold_its_bundle_is_found() -> None:
    def lax(state: StateReader, record: Record, offset: int, timestamp_ms: int) -> Outcome:
        if isinstance(record, TopicChange):
            record = replace(record, actor=BROKERS[0], session=1)
        return evolve(state, record, offset, timestamp_ms)

    history = _split(lax)
    history.accepted(topic_move(history, TopicMove.UPDATE, by=BROKERS[1]))
    findings = audited(history, rule=lax)
    assert violated(findings) == [CheckName.OWNERSHIP]
    assert f"topic:{ORDERS}: changed by {BROKERS[1]}, but {BROKERS[0]} held its bundle" in witness(
        findings, CheckName.OWNERSHIP
    )


# --- left at the end ------------------------------------------------------------------------


def test_an_operation_that_nobody_finishes_is_found_and_its_controller_named() -> None:
    history = _split()
    begin(history, (1,))
    since_ms = history.now_ms
    history.wait(100_000)
    history.accepted(topic_move(history, TopicMove.UPDATE))  # alive, but it does not go on
    history.wait(100_000)
    for broker in BROKERS:
        history.beat(broker)
    findings = audited(history)
    assert violated(findings) == [CheckName.STUCK]
    waited_s = (history.now_ms - since_ms) / 1000
    assert f"{ORDERS}: PREPARING for {waited_s:.1f} s, controlled by {BROKERS[0]}" in witness(
        findings, CheckName.STUCK
    )


ENDS = {(ORDERS, 0): (100, 100), (ORDERS, 2): (100,)}
COMMITTED = {(ORDERS, BILLING, 0): (100, 100)}


@pytest.mark.parametrize(
    ("ends", "committed", "text"),
    [
        (ENDS, COMMITTED, ""),
        ({}, {}, ""),
        (ENDS, {}, ""),
        (ENDS, {(ORDERS, BILLING, 0): (101, 100)}, ""),
        (
            {**ENDS, (ORDERS, 0): (100, 101)},
            {},
            "segment 0000-7fff-0 partition 1: data after its seal: it was sealed at 100",
        ),
        ({**ENDS, (ORDERS, 2): (99,)}, {}, "segment 0000-3fff-2 partition 0: lost data"),
        (
            ENDS,
            {(ORDERS, BILLING, 0): (100, 99)},
            "0000-7fff-0 partition 1 is called drained, but committed 99 of 100",
        ),
        (ENDS, {(ORDERS, BILLING, 0): (-1, 100)}, "partition 0 is called drained, but committed"),
    ],
)
def test_what_kafka_holds_is_compared_with_the_ends_that_the_log_names(
    ends: dict[tuple[str, int], tuple[int, ...]],
    committed: dict[tuple[str, str, int], tuple[int, ...]],
    text: str,
) -> None:
    history = History()
    history.found()
    create(history, buckets=2)
    reshape(history, (0,))
    reshape(history, (2,))
    subscribe(history)
    drain(history, (0,))
    findings = audited(history, segment_ends=SegmentEnds(ends, committed))
    result = {check.name: check.result for check in findings.checks}[CheckName.SEGMENTS]
    if not text:
        assert result is (CheckResult.OK if ends else CheckResult.NOT_APPLICABLE)
    else:
        assert violated(findings) == [CheckName.SEGMENTS]
        assert text in witness(findings, CheckName.SEGMENTS)


def test_an_offset_that_kafka_has_forgotten_proves_nothing() -> None:
    history = History()
    history.found()
    create(history, buckets=2)
    reshape(history, (0,))
    subscribe(history)
    drain(history, (0,))
    history.wait(25 * 3_600_000)
    history.garbage()
    forgotten = {(ORDERS, BILLING, 0): (-1, -1)}
    ends = {(ORDERS, 0): (100, 100)}
    findings = audited(history, segment_ends=SegmentEnds(ends, forgotten))
    assert violated(findings) == []
