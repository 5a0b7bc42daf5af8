"""Scalable topics in the audit: a sound history passes, each planted violation is found."""

from __future__ import annotations

from typing import cast

import pytest
from msgspec.structs import replace

from anabranch.channel.kafka.connection import KafkaConnection
from anabranch.core.entities.layout import SegmentLayout
from anabranch.core.entities.segment import SegmentInfo, SegmentState
from anabranch.core.entities.topic import ScalableTopic
from anabranch.core.fold.evolve import evolve
from anabranch.core.hashing import bucket_of, hash32, segment_hash
from anabranch.core.topics.kafka_names import kafka_topic
from anabranch.spark_replay.audit import segment_edges
from anabranch.spark_replay.audit.checks.topics.layouts import Layouts
from anabranch.spark_replay.audit.checks.topics.order import Bucket, Edge, Edges, check_order
from anabranch.spark_replay.audit.checks.topics.segments import SegmentEnds
from anabranch.spark_replay.audit.checks.topics.topic_checks import SealedSegment, TopicsLeft
from anabranch.spark_replay.audit.tally import CheckName
from anabranch.spark_replay.audit.verdict import CheckResult
from support import topic_history as topics
from support.history import BROKERS, History, Rule
from support.local_audit import audited, not_applicable, only, told, violated
from support.told_offsets import Leaders
from support.topic_history import ORDERS, created, reshape, topic_of, topical, with_part


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
    assert sum(findings.figures.reshapes.values()) == 25


def test_a_log_that_begins_in_the_middle_of_an_operation_is_replayed_from_the_snapshot() -> None:
    history = topics.topical()
    topics.begin(history, (topic_of(history).layout.active[0].segment_id,))
    taken = history.snapshot()
    topics.commit(history)
    findings = audited(history, snapshot=taken, without_before=taken.horizon.next_offset)
    assert violated(findings) == []
    checks = {check.name: check for check in findings.checks}
    assert "the beginning of the log is gone" in checks[CheckName.SEALS].note


def _split(rule: Rule = evolve) -> History:
    """A topic whose first segment of two is split into 2 and 3."""
    history = topics.created(rule)
    topics.begin(history, (0,))
    topics.commit(history)
    return history


# --- left at the end ------------------------------------------------------------------------


def test_sealed_segments_are_judged_only_where_kafka_was_asked() -> None:
    history = _split()
    kafka = SegmentEnds({(ORDERS, 0): (101,)}, {})
    only(history, CheckName.SEGMENTS, "it was sealed at 100 and ends at 101", segment_ends=kafka)
    assert CheckName.SEGMENTS in not_applicable(audited(history))


# --- a key's order by the time-stamps of Kafka's brokers: what they prove, and what they do not


TOLERANCE_MS = 250
SEALED_MS = 1_790_000_000_000
KEY = b"order-17"


def split(buckets: int = 4) -> tuple[TopicsLeft, SegmentInfo, list[SegmentInfo]]:
    """One segment that was split: what is left of it, itself, and its children."""
    plain = SegmentLayout.initial(1, buckets)
    after = plain.replaced((0,), plain.split_children(0), {0: (1,) * buckets}, SEALED_MS)
    parent, children = after.segments[0], [after.segments[1], after.segments[2]]
    one = SealedSegment(ORDERS, 5, parent, 33, tuple(children))
    return TopicsLeft(1, [], [one], 1, []), parent, children


def place(part: SegmentInfo, key: bytes = KEY) -> Bucket:
    return ORDERS, part.segment_id, bucket_of(hash32(key), part.buckets)


def home(children: list[SegmentInfo], key: bytes = KEY) -> SegmentInfo:
    return next(child for child in children if segment_hash(hash32(key)) in child)


def edges(first: Edge, last: Edge) -> tuple[TopicsLeft, Edges]:
    found, parent, children = split()
    return found, Edges({place(home(children)): first}, {place(parent): last})


@pytest.mark.parametrize(("early_ms", "violations"), [(-1, 0), (0, 0), (250, 0), (251, 1)])
def test_a_child_that_took_a_key_before_its_parent_is_found(early_ms: int, violations: int) -> None:
    found, both = edges(
        Edge(KEY, SEALED_MS - early_ms, by_broker=True), Edge(b"other", SEALED_MS, by_broker=True)
    )
    tally, unjudged = check_order(found, both, TOLERANCE_MS)
    assert (tally.examined, tally.violated, unjudged) == (1, violations, 0)
    assert [witness.offset for witness in tally.witnesses] == [33] * violations
    assert all("251 ms before its parent 0000-ffff-0" in each.text for each in tally.witnesses)


@pytest.mark.parametrize(("child", "parent"), [(False, True), (True, False), (False, False)])
def test_the_senders_time_stamps_prove_nothing(child: bool, parent: bool) -> None:
    found, both = edges(Edge(KEY, 1, by_broker=child), Edge(KEY, SEALED_MS, by_broker=parent))
    tally, unjudged = check_order(found, both, TOLERANCE_MS)
    assert (tally.examined, tally.violated, unjudged) == (0, 0, 1)


def test_each_bucket_is_judged_by_itself_and_counted() -> None:
    found, parent, children = split(8)
    child = children[0]
    own = (key for key in map(b"%d".__mod__, range(1000)) if segment_hash(hash32(key)) in child)
    by_bucket = {bucket_of(hash32(key), child.buckets): key for key in own}
    keys = [by_bucket[bucket] for bucket in range(child.buckets)]
    assert len(keys) == 4
    firsts = {
        place(child, key): Edge(key, SEALED_MS, by_broker=bucket > 1)
        for bucket, key in enumerate(keys)
    }
    lasts = {place(parent, key): Edge(key, SEALED_MS, by_broker=True) for key in keys}
    tally, unjudged = check_order(found, Edges(firsts, lasts), TOLERANCE_MS)
    assert (tally.examined, unjudged) == (2, 2)


def test_only_the_bucket_that_had_the_key_is_its_past() -> None:
    """Where Kafka has several brokers, other buckets of the parent may rightly end later."""
    found, parent, children = split()
    topic, segment_id, bucket = place(parent)
    others = {
        (topic, segment_id, each): Edge(KEY, SEALED_MS, by_broker=True)
        for each in range(parent.buckets)
        if each != bucket
    }
    first = {place(home(children)): Edge(KEY, 1, by_broker=True)}
    tally, unjudged = check_order(found, Edges(first, others), TOLERANCE_MS)
    assert (tally.examined, unjudged) == (0, 0)


def test_a_message_without_a_key_has_no_past() -> None:
    found, both = edges(Edge(None, 1, by_broker=True), Edge(KEY, SEALED_MS, by_broker=True))
    tally, unjudged = check_order(found, both, TOLERANCE_MS)
    assert (tally.examined, unjudged) == (0, 0)


def test_the_report_says_what_could_not_be_judged() -> None:
    history = created(buckets=2)
    reshape(history, (0,))
    parent, *rest = topic_of(history).segments
    children = [part for part in rest if parent.segment_id in part.parent_ids]
    key = next(b"%d" % n for n in range(100) if segment_hash(hash32(b"%d" % n)) in parent)
    last = {place(parent, key): Edge(key, 900, by_broker=True)}
    first, at = Edge(key, 100, by_broker=False), place(home(children, key), key)
    nothing = SegmentEnds({}, {})
    findings = audited(history, segment_ends=nothing, segment_edges=Edges({at: first}, last))
    (check,) = (each for each in findings.checks if each.name is CheckName.ORDER)
    assert check.result is CheckResult.NOT_APPLICABLE
    assert check.note.startswith("1 of 1 successions cannot be judged")
    first = replace(first, by_broker=True)
    findings = audited(history, segment_ends=nothing, segment_edges=Edges({at: first}, last))
    assert violated(findings) == [CheckName.ORDER]


def test_what_kafka_does_not_answer_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment_edges, "_ANSWER_S", 0.0)
    found, parent, children = split()
    (one,) = found.sealed
    led = {
        kafka_topic("t.", one.topic, one.incarnation, part): [1] * part.buckets
        for part in (parent, *children)
    }
    silent = cast(KafkaConnection, Leaders(led, silent=frozenset({1})))
    assert segment_edges.read_edges(silent, "t.", found) == Edges()


# --- what is wrong with a layout, in words: each fault by itself, at its edge, and only once ------


@pytest.fixture(scope="module")
def sound() -> ScalableTopic:
    """Has active and sealed segments, splits and merges."""
    return topic_of(topical(), ORDERS)


def faults(*steps: ScalableTopic | None) -> list[tuple[int, str]]:
    check = Layouts()
    for offset, topic in enumerate(steps, 5):
        check.changed(offset, "t", topic)
    assert check.tally.examined == len(steps)
    return told(check.tally)


def by_id(topic: ScalableTopic) -> dict[int, SegmentInfo]:
    return {part.segment_id: part for part in topic.segments}


def active(topic: ScalableTopic) -> list[SegmentInfo]:
    return sorted((p for p in topic.segments if p.is_active), key=lambda part: part.start)


def test_a_sound_layout_has_no_fault_and_a_deleted_topic_none_either(sound: ScalableTopic) -> None:
    assert faults(sound, None, sound) == []


def test_a_fault_is_told_once_until_it_is_mended(sound: ScalableTopic) -> None:
    first = active(sound)[0]
    broken = with_part(first.segment_id, end=first.end - 1)(sound)
    text = f"t: no active segment covers {first.end:04x}-{first.end:04x}"
    assert faults(broken, broken, broken, sound, broken) == [(5, text), (9, text)]


def test_what_no_segment_covers_is_told_at_each_end(sound: ScalableTopic) -> None:
    parts = active(sound)
    begins = with_part(parts[0].segment_id, start=1)(sound)
    assert faults(begins) == [(5, "t: no active segment covers 0000-0000")]
    ends = with_part(parts[-1].segment_id, end=0xFFFE)(sound)
    assert faults(ends) == [(5, "t: no active segment covers ffff-ffff")]
    nothing = replace(sound, segments=(), next_segment_id=0)
    assert faults(nothing) == [(5, "t: no active segment covers 0000-ffff")]


def test_what_two_segments_cover_is_told(sound: ScalableTopic) -> None:
    first, second = active(sound)[:2]
    (found,) = faults(with_part(second.segment_id, start=second.start - 1)(sound))
    assert found[1].startswith(f"t: more than one active segment covers {first.end:04x}: ")


def test_a_range_that_ends_before_it_begins_is_told() -> None:
    part = SegmentLayout.initial(1, 1).active[0]
    inverted = replace(part, segment_id=1, start=5, end=4)
    before = replace(part, end=4)
    found = faults(replace(topic_of(topical(), ORDERS), segments=(before, inverted)))
    assert "more than one active segment covers 0005" in found[0][1]


def test_a_segment_may_cover_a_single_hash(sound: ScalableTopic) -> None:
    part = SegmentLayout.initial(1, 1).active[0]
    first = replace(part, end=0)
    assert faults(replace(sound, segments=(first, replace(part, segment_id=1, start=1)))) == []


def test_the_next_id_is_above_all_others(sound: ScalableTopic) -> None:
    newest = max(by_id(sound))
    assert faults(replace(sound, next_segment_id=newest + 1)) == []
    assert faults(replace(sound, next_segment_id=newest)) == [
        (5, f"t: segment {newest} exists, but {newest} is the next id")
    ]


def test_two_segments_of_one_id_are_told(sound: ScalableTopic) -> None:
    twice = replace(sound, segments=(*sound.segments, sound.segments[0]))
    assert faults(twice) == [(5, "t: two segments have the same id")]


def test_parents_and_children_name_each_other(sound: ScalableTopic) -> None:
    parts = by_id(sound)
    child = next(part for part in sound.segments if part.parent_ids and part.parent_ids[0] in parts)
    parent = parts[child.parent_ids[0]]
    orphaned = with_part(child.segment_id, parent_ids=())(sound)
    assert any("which does not name it as parent" in text for _, text in faults(orphaned))
    (found,) = faults(with_part(parent.segment_id, child_ids=())(sound))
    assert "which does not name it as child" in found[1] or "nothing took its place" in found[1]
    pruned = replace(sound, segments=tuple(p for p in sound.segments if p != parent))
    assert any("which does not name it as child" in text for _, text in faults(pruned))


def test_a_child_is_younger_than_its_parents_and_only_sealed_segments_have_any() -> None:
    part = SegmentLayout.initial(1, 1).active[0]
    topic = topic_of(topical(), ORDERS)

    def of(*segments: SegmentInfo) -> ScalableTopic:
        return replace(topic, segments=segments, next_segment_id=9)

    own = replace(part, segment_id=3, parent_ids=(3,), child_ids=(3,))
    assert faults(of(own)) == [(5, "t: segment 3 descends from 3, which is not older: a cycle")]
    sealed = replace(part, segment_id=2, state=SegmentState.SEALED)
    heir = replace(part, segment_id=4)
    assert faults(of(sealed, heir)) == [(5, "t: segment 2 is sealed and nothing took its place")]
    mother = replace(part, segment_id=2, child_ids=(4,))
    younger = replace(
        part, segment_id=4, state=SegmentState.SEALED, parent_ids=(2,), child_ids=(5,)
    )
    last = replace(part, segment_id=5, state=SegmentState.SEALED, parent_ids=(4,), child_ids=())
    assert faults(of(mother, younger, last)) == [(5, "t: segment 2 is active and has children")]
