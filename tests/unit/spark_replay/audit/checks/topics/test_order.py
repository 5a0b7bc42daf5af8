"""A key's order by the time-stamps of Kafka's brokers: what they prove, and what they do not."""

from __future__ import annotations

from typing import cast

import pytest
from msgspec.structs import replace

from anabranch.channel.kafka.connection import KafkaConnection
from anabranch.core.hashing import bucket_of, hash32, segment_hash
from anabranch.core.topics.kafka_names import kafka_topic
from anabranch.core.topics.layout import SegmentLayout
from anabranch.core.topics.segment import SegmentInfo
from anabranch.spark_replay.audit import segment_edges
from anabranch.spark_replay.audit.checks.topics.order import Bucket, Edge, Edges, check_order
from anabranch.spark_replay.audit.checks.topics.segments import SegmentEnds
from anabranch.spark_replay.audit.checks.topics.topic_checks import SealedSegment, TopicsLeft
from anabranch.spark_replay.audit.tally import CheckName
from anabranch.spark_replay.audit.verdict import CheckResult
from support.local_audit import audited, violated
from support.told_offsets import Leaders
from support.topic_history import ORDERS, created, reshape, topic_of

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
