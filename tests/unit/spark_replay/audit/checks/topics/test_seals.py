"""What may happen to a topic's segments, by its accepted records alone: each fault by itself."""

from __future__ import annotations

import functools
from typing import Any

import pytest
from msgspec.structs import replace

from anabranch.core.entities.segment import SegmentInfo, SegmentState
from anabranch.core.entities.topic import ScalableTopic, TopicMove
from anabranch.core.log.records import TopicChange
from anabranch.spark_replay.audit.checks.topics.seals import Seals
from support import topic_history as topics
from support.history import History
from support.topic_history import ORDERS, Spoil, topic_of, with_part


class Followed:
    """A topic of two segments with two buckets each, of which 0 is split; a check that watches."""

    def __init__(self, segments: int = 2) -> None:
        self.history = History()
        self.history.found()
        topics.create(self.history, segments=segments, buckets=2)
        self.check = Seals()
        self.check.start(ORDERS, self.topic)

    @property
    def topic(self) -> ScalableTopic:
        return topic_of(self.history)

    def begin(self, parents: tuple[int, ...], prepare: int = 0) -> None:
        before = self.topic
        topics.begin(self.history, parents, prepare=prepare)
        self._watched(before, self.topic)

    def move(self, move: TopicMove, spoil: Spoil = lambda topic: topic, **fields: Any) -> None:
        before = self.topic
        self.history.accepted(topics.topic_move(self.history, move, **fields))
        self._watched(before, spoil(self.topic))

    def _watched(self, before: ScalableTopic, after: ScalableTopic) -> None:
        record = self.history.folded[-1].record
        assert isinstance(record, TopicChange)
        self.check.changed(self.history.next_offset - 1, record, before, after)

    def split(self, spoil: Spoil = lambda topic: topic) -> None:
        self.begin((0,))
        self.move(TopicMove.SEALING)
        self.move(TopicMove.COMMIT, spoil, end_offsets=(7, 9))

    def told(self) -> list[str]:
        assert self.check.tally.violated == len(self.check.tally.witnesses)
        return [found.text.removeprefix(f"{ORDERS}: ") for found in self.check.tally.witnesses]


def without(number: int) -> Spoil:
    def spoil(topic: ScalableTopic) -> ScalableTopic:
        parts = tuple(part for part in topic.segments if part.segment_id != number)
        return replace(topic, segments=parts)

    return spoil


def one_by_one(*spoils: Spoil) -> Spoil:
    return lambda topic: functools.reduce(lambda spoilt, spoil: spoil(spoilt), spoils, topic)


def with_more(part: SegmentInfo) -> Spoil:
    return lambda topic: replace(topic, segments=(*topic.segments, part))


@pytest.mark.parametrize("move", [TopicMove.SEALING, TopicMove.COMMIT])
def test_nothing_is_sealed_that_no_begin_had_announced(move: TopicMove) -> None:
    followed = Followed()
    record = topics.topic_move(followed.history, move)
    followed.check.changed(9, record, followed.topic, followed.topic)
    assert followed.told() == [f"{move.name}, but no BEGIN had named any children"]
    assert [found.offset for found in followed.check.tally.witnesses] == [9]


@pytest.mark.parametrize(
    ("move", "text"),
    [
        (TopicMove.ABORT, "ABORT after SEALING: its parents may be sealed in Kafka"),
        (TopicMove.DELETE, "DELETE after SEALING, before what was begun was committed"),
    ],
)
def test_nothing_is_given_up_after_the_point_of_no_return(move: TopicMove, text: str) -> None:
    followed = Followed()
    followed.begin((0,))
    before_sealing = topics.topic_move(followed.history, move)
    followed.check.changed(9, before_sealing, followed.topic, followed.topic)
    assert followed.told() == []
    followed = Followed()
    followed.begin((0,))
    followed.move(TopicMove.SEALING)
    record = topics.topic_move(followed.history, move)
    followed.check.changed(9, record, followed.topic, followed.topic)
    assert followed.told() == [text]


def test_a_commit_without_sealing_is_found() -> None:
    followed = Followed()
    followed.begin((0,))
    # Nobody told it.
    followed.history.accepted(topics.topic_move(followed.history, TopicMove.SEALING))
    followed.move(TopicMove.COMMIT, end_offsets=(7, 9))
    assert followed.told() == ["COMMIT without SEALING"]


@pytest.mark.parametrize(
    ("spoil", "texts"),
    [
        (
            with_part(0, end_offsets=(7, 8)),
            ["segment 0 has 2 partitions and ends (7, 8); its COMMIT says (7, 9)"],
        ),
        (without(2), ["segment 2 was begun, but its COMMIT did not make it active"]),
        (
            lambda topic: with_more(replace(topic.segments[-1], segment_id=8))(topic),
            ["segment 8 became active, but no BEGIN had named it"],
        ),
        (without(0), ["segment 0 was to be sealed, and is not", "COMMIT lost segment 0"]),
        (without(1), ["COMMIT lost segment 1"]),
        (with_part(0, start=1), ["the start of active segment 0 was 0 and became 1"]),
        (with_part(0, end=1), ["the end of active segment 0 was 32767 and became 1"]),
        (with_part(0, created_at_ms=1), None),
        (
            with_part(1, state=SegmentState.SEALED),
            ["segment 1 was sealed, but it was not a parent of what was begun"],
        ),
    ],
)
def test_a_commit_puts_children_in_their_place(spoil: Spoil, texts: list[str] | None) -> None:
    followed = Followed()
    followed.split(spoil)
    if texts is None:
        (found,) = followed.told()
        assert found.startswith("the created_at_ms of active segment 0 was ")
    else:
        assert followed.told() == texts


@pytest.mark.parametrize(
    ("spoil", "texts"),
    [
        (lambda topic: topic, []),
        (
            with_part(0, end_offsets=(7, 0)),
            ["the end_offsets of sealed segment 0 was (0, 0) and became (7, 0)"],
        ),
    ],
)
def test_a_lost_segment_ends_where_it_began(spoil: Spoil, texts: list[str]) -> None:
    followed = Followed()
    followed.split()
    followed.move(TopicMove.LOST, spoil, segment_ids=(0,), end_offsets=(7, 9))
    assert followed.told() == texts


def followed_sealed() -> SegmentInfo:
    followed = Followed()
    followed.split()
    return next(part for part in followed.topic.segments if not part.is_active)


@pytest.mark.parametrize(
    ("spoils", "texts"),
    [
        ((), []),
        (
            (without(0), with_part(1, end_offsets=(9, 9))),
            [
                "segment 0 was to be sealed, and is not",
                "segment 1 has 2 partitions and ends (9, 9); its COMMIT says (1, 2)",
                "COMMIT lost segment 0",
            ],
        ),
        (
            (with_part(0, end_offsets=(3, 4)), with_part(1, end_offsets=(1, 2))),
            [
                "segment 0 has 2 partitions and ends (3, 4); its COMMIT says (1, 2)",
                "segment 1 has 2 partitions and ends (1, 2); its COMMIT says (3, 4)",
            ],
        ),
    ],
)
def test_of_two_parents_each_is_judged_by_itself_in_the_order_of_begin(
    spoils: tuple[Spoil, ...], texts: list[str]
) -> None:
    followed = Followed()
    followed.begin((0, 1))
    followed.move(TopicMove.SEALING)
    followed.move(TopicMove.COMMIT, one_by_one(*spoils), end_offsets=(1, 2, 3, 4))
    assert followed.told() == texts


def test_of_three_parents_the_ends_are_those_of_each() -> None:
    followed = Followed(3)
    made, ids, ends = followed.topic, (0, 1, 2), (0, 9, 1, 9, 2, 9)
    lasts: dict[str, Any] = {"state": SegmentState.SEALED}
    parts = tuple(replace(made.segments[n], end_offsets=(n, 9), **lasts) for n in ids)
    for move in (TopicMove.BEGIN, TopicMove.SEALING, TopicMove.COMMIT):
        record = topics.topic_move(followed.history, move, parents=ids, end_offsets=ends)
        after = replace(made, segments=parts) if move is TopicMove.COMMIT else made
        followed.check.changed(9, record, made, after)
    assert followed.told() == []


def test_what_is_under_way_in_a_snapshot_goes_on_from_there() -> None:
    followed = Followed()
    followed.begin((0,))
    followed.move(TopicMove.SEALING)
    followed.check = Seals()
    followed.check.start(ORDERS, followed.topic)
    followed.move(TopicMove.COMMIT, end_offsets=(7, 9))
    assert followed.told() == []


@pytest.mark.parametrize(
    ("spoil", "text"),
    [
        (with_part(1, state=followed_sealed().state), "UPDATE sealed segment 1"),
        (without(1), "UPDATE lost segment 1"),
        (without(0), "UPDATE lost segment 0"),
        (with_more(followed_sealed()), None),
        (
            with_part(0, sealed_at_epoch=77),
            "the sealed_at_epoch of sealed segment 0 was 1 and became 77",
        ),
        (with_part(1, buckets=9), "the buckets of active segment 1 was 2 and became 9"),
        (
            with_part(1, created_at_epoch=9),
            "the created_at_epoch of active segment 1 was 0 and became 9",
        ),
        (with_part(1, sealed_at_epoch=9), ""),
    ],
)
def test_only_an_operation_changes_segments(spoil: Spoil, text: str | None) -> None:
    followed = Followed()
    followed.split()
    followed.move(TopicMove.UPDATE, spoil, properties=("a", "b"))
    assert followed.told() == ([text] if text else [])


def test_a_new_segment_comes_by_an_operation_only() -> None:
    followed = Followed()
    extra = replace(followed.topic.segments[0], segment_id=5)
    followed.move(TopicMove.UPDATE, with_more(extra), properties=("a", "b"))
    assert followed.told() == ["UPDATE made segment 5"]


def prepared(spoil: Spoil = lambda topic: topic) -> list[str]:
    """What is said of a prepare from three segments to two, 3 of (0, 1) and 4 of (1, 2)."""
    followed = Followed(3)
    followed.begin((), prepare=2)
    followed.move(TopicMove.SEALING)
    followed.move(TopicMove.COMMIT, spoil, end_offsets=(1, 2, 3, 4, 5, 6))
    return followed.told()


@pytest.mark.parametrize("parents", [(0,), (1,), (0, 1, 2), ()])
def test_a_child_descends_from_all_whose_hashes_it_takes_and_from_no_others(
    parents: tuple[int, ...],
) -> None:
    assert prepared() == []
    text = f"segment 3 takes hashes of [0, 1], but descends from {list(parents)}"
    assert prepared(with_part(3, parent_ids=parents)) == [text]


def test_a_new_topics_segments_are_active_and_come_from_nothing() -> None:
    history = topics.created()
    topic = topic_of(history)
    record = topics.topic_move(history, TopicMove.CREATE)
    for spoil in (with_part(1, parent_ids=(0,)), with_part(1, state=followed_sealed().state)):
        check = Seals()
        check.changed(9, record, None, spoil(topic))
        (found,) = check.tally.witnesses
        assert found.text == f"{ORDERS}: segment 1 of a new topic is not active, or has parents"
    fine = Seals()
    fine.changed(9, record, None, topic)
    assert (fine.tally.violated, fine.tally.examined) == (0, 1)


def pruned(spoil: Spoil, named: tuple[int, ...] = (0,)) -> list[str]:
    """What is said of a PRUNE that names these, after which the layout is as `spoil` makes it."""
    history = topics.created()
    topics.subscribe(history)
    topics.reshape(history, (0,))
    topics.reshape(history, (2,))
    topics.drain(history, (0,))
    check = Seals()
    before = topic_of(history)
    record = topics.topic_move(history, TopicMove.PRUNE, segment_ids=named)
    check.changed(9, record, before, spoil(before))
    return [found.text.removeprefix(f"{ORDERS}: ") for found in check.tally.witnesses]


def test_a_prune_takes_away_what_it_names_sealed_ones_and_the_oldest_first() -> None:
    assert pruned(without(0)) == []
    assert pruned(lambda topic: topic) == [
        "PRUNE names (0,), but of segment 0 the layout says otherwise"
    ]
    assert pruned(one_by_one(without(0), without(2))) == [
        "PRUNE names (0,), but of segment 2 the layout says otherwise"
    ]
    assert pruned(without(2), (2,)) == ["PRUNE took segment 2 away before what it descends from"]
    assert pruned(without(1), (1,)) == ["PRUNE took segment 1 away, which was active"]
