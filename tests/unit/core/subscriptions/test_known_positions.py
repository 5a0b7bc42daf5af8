"""Which position a controller believes, of the log's, Kafka's and its consumers'."""

from __future__ import annotations

import pytest

from anabranch.core.entities.subscription import (
    SegmentPositions,
    Subscription,
    SubscriptionKind,
)
from anabranch.core.subscriptions.known_positions import (
    CommittedPosition,
    KnownPositions,
    PositionFinding,
    kept_mark,
    mark_of,
)

LIFE = 9
LOGGED = (SegmentPositions(0, (5, 0)),)
KNOWN = Subscription(1, SubscriptionKind.STREAM, LIFE, (), (), (), 0, 1, "p", LOGGED)
A, B = (0, 0), (0, 1)
OURS, FORMER = mark_of(LIFE), mark_of(LIFE - 1)


@pytest.mark.parametrize(
    ("told", "finding"),
    [
        (CommittedPosition(8, OURS), None),
        (CommittedPosition(6, OURS), PositionFinding.BACK),
        (CommittedPosition(7, kept_mark(LIFE)), None),
        (CommittedPosition(5, kept_mark(LIFE)), PositionFinding.OVERWRITTEN),
        (CommittedPosition(7, FORMER), PositionFinding.OVERWRITTEN),
        (CommittedPosition(7, ""), PositionFinding.OVERWRITTEN),
        (None, PositionFinding.GONE),
    ],
)
def test_what_others_make_of_a_position_that_kafka_had_is_found(
    told: CommittedPosition | None, finding: PositionFinding | None
) -> None:
    standing = KnownPositions(LIFE)
    assert standing.look(KNOWN, [A], {A: CommittedPosition(7, OURS)}) == {}
    found = {A: told} if told is not None else {}
    assert standing.look(KNOWN, [A], found) == ({A: finding} if finding else {})
    believed = told.offset if told is not None and told.mark == OURS else 7
    assert standing.at == {A: believed}


def test_what_kafka_has_not_been_told_yet_is_nobodys_doing() -> None:
    standing = KnownPositions(LIFE)
    assert standing.look(KNOWN, [A, B], {}) == {A: PositionFinding.UNSAID}, (
        "the log has nothing of B"
    )
    assert standing.look(KNOWN, [B], {B: CommittedPosition(99, FORMER)}) == {
        B: PositionFinding.UNSAID
    }
    assert standing.look(KNOWN, [B], {B: CommittedPosition(99)}) == {B: PositionFinding.OVERWRITTEN}
    assert standing.at == {}


def test_a_consumers_word_is_newer_than_what_kafka_is_being_asked_for() -> None:
    standing = KnownPositions(LIFE)
    standing.begin_look()
    standing.told({A: 8})
    assert standing.look(KNOWN, [A], {A: CommittedPosition(7, OURS)}) == {}
    assert standing.at == {A: 8}
    standing.begin_look()
    assert standing.look(KNOWN, [A], {A: CommittedPosition(3)}) == {A: PositionFinding.OVERWRITTEN}


def test_what_is_known_of_a_segment_that_is_drained_is_forgotten() -> None:
    standing = KnownPositions(LIFE)
    standing.look(KNOWN, [A, B], {A: CommittedPosition(7, OURS), B: CommittedPosition(8, OURS)})
    standing.look(KNOWN, [B], {B: CommittedPosition(8, OURS)})
    assert standing.at == {B: 8}
