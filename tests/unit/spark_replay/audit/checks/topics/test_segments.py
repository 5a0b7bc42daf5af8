"""What Kafka holds of sealed segments, and what is left of topics at the end of the log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
import pytest

from anabranch.core.entities.cluster import Cluster
from anabranch.core.entities.segment import SegmentInfo
from anabranch.core.entities.session import Session
from anabranch.core.entities.subscription import (
    SegmentPositions,
    Subscription,
    SubscriptionKind,
    SubscriptionOp,
)
from anabranch.core.entities.topic import TopicMove, TopicState
from anabranch.core.entities.unit import Move, UnitState
from anabranch.core.log.records import SubscriptionChange, TopicChange
from anabranch.core.log.state import FoldedState
from anabranch.spark_replay.audit.checks.topics.draining import Draining
from anabranch.spark_replay.audit.checks.topics.segments import SegmentEnds, check_segments
from anabranch.spark_replay.audit.checks.topics.topic_checks import (
    SealedSegment,
    StreamDrain,
    TopicChecks,
    TopicsLeft,
    UnfinishedTopic,
    left_by_all,
)
from anabranch.spark_replay.audit.checks.unfinished import (
    Unfinished,
    UnfinishedUnit,
    check_stuck,
    combined,
    unfinished_at_end,
)
from anabranch.spark_replay.audit.tally import CheckName, CheckTally
from support import topic_history as topics
from support.history import BROKERS, History, ready
from support.local_audit import told
from support.there import there
from support.topic_history import BILLING, ORDERS, topic_of

DAY_MS: Final = 24 * 3_600_000


def sealed_and_drained() -> History:
    """Segment 0 with two buckets is sealed at 100 each, a stream subscription has drained it."""
    history = topics.created(buckets=2)
    topics.subscribe(history)
    topics.subscribe(history, "jobs", kind=SubscriptionKind.QUEUE)
    topics.reshape(history, (0,))
    topics.drain(history, (0,))
    return history


split = pytest.fixture(scope="module", name="split")(sealed_and_drained)


def sealed(history: History) -> SegmentInfo:
    return next(part for part in topic_of(history).segments if not part.is_active)


def left(history: History, offset: int = 33, noted: tuple[int, ...] = ()) -> TopicsLeft:
    drain = StreamDrain(ORDERS, BILLING, 1, 1, [SegmentPositions(0, noted)])
    return TopicsLeft(1, [], [SealedSegment(ORDERS, 5, sealed(history), offset)], 1, [drain])


PLACE = (ORDERS, 0)
GROUP = (ORDERS, BILLING, 0)


@pytest.mark.parametrize(
    ("ends", "texts"),
    [
        ((100, 100), []),
        ((99, 100), ["partition 0: lost data: it was sealed at 100 and ends at 99"]),
        ((100, 101), ["partition 1: data after its seal: it was sealed at 100 and ends at 101"]),
    ],
)
def test_kafkas_ends_are_the_logs(split: History, ends: tuple[int, ...], texts: list[str]) -> None:
    tally = check_segments(left(split), SegmentEnds({PLACE: ends}, {}), split.now_ms)
    assert tally.examined == 2
    where = f"{ORDERS}: segment {sealed(split).descriptor} "
    assert told(tally) == [(33, where + text) for text in texts]


def test_a_segment_that_kafka_does_not_have_any_more_proves_nothing(split: History) -> None:
    forgotten = SegmentEnds({}, {GROUP: (-1, 0)})
    assert check_segments(left(split), forgotten, split.now_ms) == CheckTally(0, 0, [])
    other = SegmentEnds({PLACE: (100, 100)}, {(ORDERS, BILLING, 7): (0,)})
    assert check_segments(left(split), other, split.now_ms).examined == 2


@pytest.mark.parametrize(
    ("committed", "examined", "texts"),
    [
        ((100, 100), 2, []),
        ((101, 100), 2, []),
        ((99, 100), 2, ["partition 0 is called drained, but committed 99 of 100"]),
        ((100, -1), 2, ["partition 1 is called drained, but committed none of 100"]),
        ((100, None), 1, []),  # somebody else's: nobody can tell any more
        ((99, None), 1, ["partition 0 is called drained, but committed 99 of 100"]),
    ],
)
def test_what_is_drained_is_committed(
    split: History, committed: tuple[int | None, ...], examined: int, texts: list[str]
) -> None:
    kafka = SegmentEnds({PLACE: (100, 100)}, {GROUP: committed})
    tally = check_segments(left(split), kafka, split.now_ms)
    assert tally.examined == 2 + examined
    where = f"{ORDERS}/{BILLING}: segment {sealed(split).descriptor} "
    assert told(tally) == [(33, where + text) for text in texts]


@pytest.mark.parametrize(("age_ms", "violations"), [(DAY_MS - 1, 1), (DAY_MS, 0)])
def test_a_missing_commit_counts_for_a_day(split: History, age_ms: int, violations: int) -> None:
    kafka = SegmentEnds({PLACE: (100, 100)}, {GROUP: (100, -1)})
    tally = check_segments(left(split), kafka, sealed(split).sealed_at_ms + age_ms)
    assert (tally.violated, tally.examined) == (violations, 3 + violations)


def test_nothing_need_be_committed_of_what_is_empty(split: History) -> None:
    empty = msgspec.structs.replace(sealed(split), end_offsets=(0, 1))
    found = msgspec.structs.replace(left(split), sealed=[SealedSegment(ORDERS, 5, empty, 33)])
    tally = check_segments(found, SegmentEnds({PLACE: (0, 1)}, {GROUP: (-1, 1)}), split.now_ms)
    assert (tally.violated, tally.examined) == (0, 3)
    tally = check_segments(found, SegmentEnds({PLACE: (0, 1)}, {GROUP: (0, 0)}), split.now_ms)
    assert tally.violated == 1


# --- what is left at the end ----------------------------------------------------------------------


def checks(history: History) -> TopicChecks:
    """All topics' checks, fed with the whole history."""
    found = TopicChecks()
    for entry in history.folded:
        record, changes = entry.record, entry.outcome.changes
        if isinstance(record, TopicChange) and changes:
            found.topic(entry.offset, record, changes)
        elif isinstance(record, SubscriptionChange) and changes:
            found.subscription(entry.offset, record, changes)
    return found


def from_snapshot(history: History) -> TopicChecks:
    found = TopicChecks()
    for key, entity in history.state.entities.items():
        found.start(history.next_offset, key, entity)
    return found


@pytest.mark.parametrize("begun", [False, True])
def test_what_is_left_of_topics_does_not_depend_on_where_the_replay_began(begun: bool) -> None:
    history = sealed_and_drained()
    topics.drain(history, (0,), "jobs")
    if begun:
        topics.begin(history, (1,))
    topic = topic_of(history)
    drained = [SegmentPositions(0, ())]
    for followed, named in ((checks(history), drained), (from_snapshot(history), [])):
        found = followed.left(history.state)
        assert found.topics == 1
        assert found.sealed_count == len(found.sealed) == 1
        assert found.sealed[0] == SealedSegment(
            ORDERS,
            topic.incarnation,
            sealed(history),
            topic.since_offset,
            tuple(part for part in topic.segments if part.parent_ids == (0,)),
        )
        # Where the log had put what was drained before, a snapshot does not say.
        assert [each.drained for each in found.drains] == ([named] if named else [])
        unfinished = UnfinishedTopic(
            ORDERS, TopicState.PREPARING, BROKERS[0], topic.since_ms, topic.since_offset
        )
        assert found.unfinished == ([unfinished] if begun else [])
        assert all(not tally.violated for tally in followed.tallies().values())


def test_since_when_a_topic_is_in_flight_counts_from_its_last_state() -> None:
    history = topics.created()
    topics.begin(history, (0,))
    preparing = topic_of(history)
    history.wait(500)
    history.accepted(topics.topic_move(history, TopicMove.UPDATE, properties=("a", "b")))
    (unfinished,) = checks(history).left(history.state).unfinished
    assert (unfinished.since_ms, unfinished.since_offset) == (
        preparing.since_ms,
        preparing.since_offset,
    )
    history.wait(500)
    history.accepted(topics.topic_move(history, TopicMove.SEALING))
    (sealing,) = checks(history).left(history.state).unfinished
    assert (sealing.state, sealing.since_ms) == (TopicState.SEALING, topic_of(history).since_ms)


def test_a_deleted_topic_leaves_nothing() -> None:
    history = topics.created()
    topics.reshape(history, (1,))
    topics.reshape(history, (2,))
    two = checks(history).left(history.state)
    assert two.sealed_count == len(two.sealed) == 2
    history.accepted(topics.topic_move(history, TopicMove.DELETE))
    deleting = checks(history).left(history.state)
    assert (deleting.topics, len(deleting.unfinished), deleting.sealed_count) == (1, 1, 0)
    history.accepted(topics.topic_move(history, TopicMove.REMOVE))
    assert checks(history).left(history.state) == TopicsLeft(0, [], [], 0, [])


@pytest.mark.parametrize(("late_ms", "violations"), [(0, 0), (1, 1)])
def test_a_topic_in_flight_may_wait_as_long_as_the_patience(late_ms: int, violations: int) -> None:
    waiting = UnfinishedTopic(ORDERS, TopicState.SEALING, "", 1_000, 7)
    end_ms = 1_000 + 120_000 + late_ms
    tally = check_stuck(Unfinished(units=3), TopicsLeft(2, [waiting]), end_ms, 120_000)
    text = f"{ORDERS}: SEALING for 120.0 s, controlled by nobody"
    assert tally.examined == 5
    assert told(tally) == ([(7, text)] if violations else [])


def test_what_the_parts_leave_adds_up(split: History) -> None:
    one = left(split)
    unfinished = UnfinishedTopic("t", TopicState.PREPARING, "", 1, 2)
    two = TopicsLeft(3, [unfinished], [], 4, [StreamDrain("t", "s", 1, 1, [])])
    assert left_by_all([one, two, two]) == TopicsLeft(
        7, two.unfinished * 2, one.sealed, 9, one.drains + two.drains * 2
    )
    unit = UnfinishedUnit("u", UnitState.ASSIGNING, "b", 1, 2)
    cluster, session = Cluster(1, "c", 1, 2, 3, 4, "p"), Session(1, True, 1, 2, "p")
    first = Unfinished([unit], [], {"a": 2}, {"a": "x"}, 5, {}, None)
    second = Unfinished(
        [], [unit], {"a": 1, "b": 1}, {"a": "y", "b": "z"}, 2, {"a": session}, cluster
    )
    assert combined([first, second, Unfinished([unit], [unit])]) == Unfinished(
        [unit] * 2, [unit] * 2, {"a": 3, "b": 1}, {"a": "x", "b": "z"}, 7, {"a": session}, cluster
    )
    assert unfinished_at_end(FoldedState(), lambda _: True, with_sessions=True) == Unfinished()


def test_what_a_part_leaves_of_units_are_those_in_flight_and_who_answers_for_them() -> None:
    history = ready()
    owned, moving, assigned, _ = history.units()
    history.assign(moving, BROKERS[0])
    history.accepted(history.move(moving, Move.RELEASE, BROKERS[0], broker=BROKERS[1]))
    history.assign(assigned, BROKERS[1])
    found = unfinished_at_end(history.state, lambda _: True, with_sessions=True)
    assert found.cluster == history.state.cluster()
    assert found.sessions == dict(history.state.sessions())
    assert ([unit.name for unit in found.in_flight], found.orphaned) == ([moving], [])
    assert found.answering == {BROKERS[0]: 3, BROKERS[1]: 1}  # leadership is one of them
    assert found.sample == {BROKERS[0]: owned, BROKERS[1]: assigned}
    assert found.units == 5
    without = unfinished_at_end(history.state, lambda key: key == assigned, with_sessions=False)
    assert without == Unfinished(
        [], [], {BROKERS[1]: 1}, {BROKERS[1]: assigned}, units=1, sessions={}, cluster=None
    )


# --- draining -------------------------------------------------------------------------------------


def draining(
    *drained: int, parents: Sequence[tuple[int, ...]] = ((0,), (2,))
) -> tuple[History, Draining, Subscription]:
    """These are split, or merged, one after the other; and a check begins there."""
    history = topics.created()
    topics.subscribe(history)
    for each in parents:
        topics.reshape(history, each)
    if drained:
        topics.drain(history, drained)
    check = Draining()
    known = there(history.state.subscription(ORDERS, BILLING))
    check.start(ORDERS, BILLING, known)
    return history, check, known


@pytest.mark.parametrize("op", [SubscriptionOp.DRAINED, SubscriptionOp.RESET])
@pytest.mark.parametrize(
    ("parents", "ids", "texts"),
    [
        (((0,), (2,)), (0,), []),
        (((0,), (2,)), (0, 2), []),
        (((0,), (2,)), (2,), ["segment 2 is called drained before segments [0] above it"]),
        (((0,), (2,)), (1,), ["segment 1 is called drained, but it is not sealed"]),
        (((0,), (2,)), (9,), ["segment 9 is called drained, but it is not sealed"]),
        (
            ((0,), (2,), (4,)),
            (1, 2, 9),
            [
                "segment 1 is called drained, but it is not sealed",
                "segment 2 is called drained before segments [0] above it",
                "segment 9 is called drained, but it is not sealed",
            ],
        ),
    ],
)
def test_each_segment_is_drained_after_all_that_is_above_it(
    parents: Sequence[tuple[int, ...]], ids: tuple[int, ...], texts: list[str], op: SubscriptionOp
) -> None:
    history, check, known = draining(parents=parents)
    record = topics.subscription_move(history, op, segment_ids=ids)
    after = msgspec.structs.replace(known, drained=ids)
    check.subscription_changed(9, record, topic_of(history), after)
    assert told(check.tally) == [(9, f"{ORDERS}/{BILLING}: {text}") for text in texts]
    assert check.tally.examined == 1


def test_the_fold_of_what_is_drained_is_compared_and_gone_on_from() -> None:
    history, check, known = draining()
    record = topics.subscription_move(history, SubscriptionOp.DRAINED, segment_ids=(0,))
    check.subscription_changed(9, record, topic_of(history), known)
    said = (
        f"{ORDERS}/{BILLING}: by its accepted records it has drained segments [0], by the fold none"
    )
    assert told(check.tally) == [(9, said)]
    check.subscription_changed(10, record, topic_of(history), known)
    assert check.tally.violated == 2  # it went on from what the cluster believed: nothing drained


def test_a_subscription_that_is_deleted_or_begins_anew_has_drained_nothing() -> None:
    history, check, known = draining(0)
    reset = topics.subscription_move(history, SubscriptionOp.RESET)
    check.subscription_changed(
        9, reset, topic_of(history), msgspec.structs.replace(known, drained=())
    )
    assert told(check.tally) == []
    history, gone, _ = draining(0)
    gone.subscription_changed(
        9, topics.subscription_move(history, SubscriptionOp.DELETE), None, None
    )
    gone.topic_changed(10, topics.topic_move(history, TopicMove.PRUNE, segment_ids=(0,)), ())
    assert told(gone.tally) == []


def test_a_prunes_marks_are_taken_from_every_subscription() -> None:
    history, check, known = draining(0)
    record = topics.topic_move(history, TopicMove.PRUNE, segment_ids=(0,))
    check.topic_changed(9, record, ((f"subscription:{ORDERS}/{BILLING}", known),))
    said = (
        f"{ORDERS}/{BILLING}: by its accepted records it has drained none, by the fold segments [0]"
    )
    assert told(check.tally) == [(9, said)]


def test_a_topic_that_is_made_anew_has_no_subscriptions() -> None:
    history, check, _ = draining()
    check.topic_changed(9, topics.topic_move(history, TopicMove.REMOVE), ())
    check.topic_changed(10, topics.topic_move(history, TopicMove.PRUNE, segment_ids=(0,)), ())
    assert (told(check.tally), check.tally.examined) == ([], 0)


def test_all_that_is_above_a_merged_segment_counts_once_and_what_is_pruned_does_not() -> None:
    parents, merged = ((0,), (2, 3), (4,)), 4
    history, check, known = draining(parents=parents)
    record = topics.subscription_move(history, SubscriptionOp.DRAINED, segment_ids=(merged,))
    after = msgspec.structs.replace(known, drained=(merged,))
    check.subscription_changed(9, record, topic_of(history), after)
    text = f"segment {merged} is called drained before segments [0, 2, 3] above it"
    assert told(check.tally) == [(9, f"{ORDERS}/{BILLING}: {text}")]
    topic = topic_of(history)
    left_over = tuple(part for part in topic.segments if part.segment_id != 0)
    _, again, _ = draining(parents=parents)
    again.subscription_changed(9, record, msgspec.structs.replace(topic, segments=left_over), after)
    text = f"segment {merged} is called drained before segments [2, 3] above it"
    assert told(again.tally) == [(9, f"{ORDERS}/{BILLING}: {text}")]


@pytest.mark.parametrize(("drained", "missing"), [((0,), [1]), ((1,), [0]), ((0, 1), [])])
def test_a_prepared_child_is_read_after_every_parent_whose_hashes_it_takes_and_only_those(
    drained: tuple[int, ...], missing: list[int]
) -> None:
    history, *_ = draining(parents=())
    topics.begin(history, (), prepare=3)  # 2 of 0, 3 of both, 4 of 1
    topics.commit(history)
    topics.reshape(history, (3,))
    topics.drain(history, drained)
    known = there(history.state.subscription(ORDERS, BILLING))
    check = Draining()
    check.start(ORDERS, BILLING, known)
    record = topics.subscription_move(history, SubscriptionOp.DRAINED, segment_ids=(3,))
    after = msgspec.structs.replace(known, drained=(*drained, 3))
    check.subscription_changed(9, record, topic_of(history), after)
    said = f"{ORDERS}/{BILLING}: segment 3 is called drained before segments {missing} above it"
    assert told(check.tally) == ([(9, said)] if missing else [])


def test_a_snapshot_is_looked_at_like_a_change() -> None:
    history, *_ = draining(0)
    followed = from_snapshot(history)
    followed.topic(9, topics.topic_move(history, TopicMove.PRUNE, segment_ids=(0, 2)), ())
    tally = followed.tallies()[CheckName.DRAINING]
    text = f"{ORDERS}: {BILLING} had not drained segments [2], which PRUNE took away"
    assert told(tally) == [(9, text)]
    broken = TopicChecks()
    broken.start(7, f"topic:{ORDERS}", msgspec.structs.replace(topic_of(history), segments=()))
    (found,) = broken.tallies()[CheckName.LAYOUTS].witnesses
    assert (found.offset, found.text) == (7, f"{ORDERS}: no active segment covers 0000-ffff")


def test_a_record_that_leaves_nothing_of_its_topic_ends_it() -> None:
    history, *_ = draining()
    followed = TopicChecks()  # knows nothing of the topic
    followed.topic(9, topics.topic_move(history, TopicMove.REMOVE), ())
    followed.subscription(10, topics.subscription_move(history, SubscriptionOp.DELETE), ())
    assert followed.left(history.state).topics == 0


def test_a_commit_of_nothing_counts_however_old_the_seal_is(split: History) -> None:
    late_ms = sealed(split).sealed_at_ms + 9 * DAY_MS
    kafka = SegmentEnds({PLACE: (100, 100)}, {GROUP: (0, 100)})
    assert check_segments(left(split), kafka, late_ms).violated == 1
    short = SegmentEnds({PLACE: (100, 100)}, {GROUP: (100,)})
    assert check_segments(left(split), short, late_ms) == CheckTally(3, 0, [])
