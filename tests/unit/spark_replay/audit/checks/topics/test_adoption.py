"""Adopted Kafka topics in the audit: a sound history passes, each planted violation is found."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from anabranch.core.entities.giving_back import give_back_children
from anabranch.core.entities.segment import legacy_segment
from anabranch.core.entities.subscription import SubscriptionOp
from anabranch.core.entities.topic import Operation, ScalableTopic, TopicMove
from anabranch.core.hashing import hash32, segment_hash
from anabranch.core.log.records import TopicChange, topic_key
from anabranch.core.partitioners import Partitioner, partition_of
from anabranch.core.topics.guards import ADOPTABLE, ADOPTED_ONCE, CUTS_OVER, GIVES_BACK, READ_BEFORE
from anabranch.spark_replay.audit.checks.topics.adoption import (
    HELD_YET,
    Adopted,
    Adoption,
    check_adoption,
)
from anabranch.spark_replay.audit.checks.topics.draining import Draining
from anabranch.spark_replay.audit.checks.topics.order import Edge, Edges, check_order
from anabranch.spark_replay.audit.checks.topics.seals import Seals
from anabranch.spark_replay.audit.checks.topics.segments import SegmentEnds
from anabranch.spark_replay.audit.checks.topics.topic_checks import SealedSegment, TopicsLeft
from anabranch.spark_replay.audit.segment_ends import _Asker
from anabranch.spark_replay.audit.tally import CheckName
from support import topic_history as topics
from support.history import History
from support.local_audit import audited, only, told, violated
from support.state_machines import topics_without
from support.topic_history import BILLING, ORDERS, topic_of, with_part

OLD = "old-orders"
OTHER = "acme/shop/orders"


def adopt(history: History, name: str = ORDERS, entry: str = "public/default=old-*") -> None:
    """The Kafka topic becomes a scalable topic."""
    topics.controlled(history, name)
    part = legacy_segment(OLD, "id-1", 3, Partitioner.MURMUR2.value)
    fields: dict[str, Any] = {"segments": (part,), "adoptable": entry}
    history.accepted(topics.topic_move(history, TopicMove.CREATE, name, **fields))
    history.accepted(topics.topic_move(history, TopicMove.OPEN, name))


def adopted(entry: str = "public/default=old-*") -> History:
    history = History()
    history.found()
    adopt(history, entry=entry)
    return history


def cut_over(count: int = 2) -> History:
    history = adopted()
    topics.subscribe(history)
    topics.begin(history, (0,), prepare=count)
    topics.commit(history)
    return history


def give_back(history: History, **change: Any) -> None:
    """The Kafka topic that was cut over goes on in place of all segments."""
    (child,) = give_back_children(topic_of(history).layout)
    fields: dict[str, Any] = {"parents": child.parent_ids, "segments": (replace(child, **change),)}
    fields["operation"] = Operation.GIVE_BACK
    history.accepted(topics.topic_move(history, TopicMove.BEGIN, **fields))
    topics.commit(history)


@pytest.mark.parametrize("parts", [1, 3])
def test_a_sound_giving_back_passes_every_check(parts: int) -> None:
    history = cut_over()
    topics.drain(history, (0,))
    middle = history.snapshot()
    give_back(history)
    topics.drain(history, (1, 2))
    topics.prune(history, (1, 2))
    topics.begin(history, (3,), prepare=2)
    topics.commit(history, end_offset=200)
    topics.drain(history, (3,))
    give_back(history)
    assert violated(audited(history, parts=parts, snapshot=middle)) == []


@pytest.mark.parametrize(
    "change", [{"start_offsets": (100, 99, 100)}, {"topic_id": "id-2"}, {"partitioner": "crc32"}]
)
def test_a_giving_back_of_anything_but_what_was_cut_over_is_found(
    monkeypatch: pytest.MonkeyPatch, change: dict[str, Any]
) -> None:
    topics_without(monkeypatch, GIVES_BACK)
    history = cut_over()
    topics.drain(history, (0,))
    give_back(history, **change)
    text = f"{ORDERS}: a GIVE_BACK opens {OLD!r}, which was not cut over so"
    only(history, CheckName.ADOPTION, text)


@pytest.mark.parametrize(
    ("news", "is_judged"),
    [(set(), True), ({topic_key("acme/shop/bills")}, True), ({topic_key(ORDERS)}, False)],
    ids=str,
)
def test_a_kafka_topic_that_may_have_been_given_back_since_is_not_judged(
    monkeypatch: pytest.MonkeyPatch, news: set[str], is_judged: bool
) -> None:
    """The log was read before that, and Kafka was asked after it."""
    sealed = topic_of(cut_over()).segments[0]
    one = SealedSegment(ORDERS, 7, sealed, 9, ())
    asker = object.__new__(_Asker)
    monkeypatch.setattr(asker, "_news", lambda: frozenset(news))
    as_logged: dict[tuple[str, int], tuple[int, ...]] = {(ORDERS, 0): sealed.end_offsets}
    grown: dict[tuple[str, int], tuple[int, ...]] = {(ORDERS, 0): (100, 100, 101)}
    assert asker.without_opened(as_logged, {(ORDERS, 0): one}) == as_logged
    assert bool(asker.without_opened(grown, {(ORDERS, 0): one})) is is_judged


def test_a_giving_back_before_a_subscription_has_read_the_kafka_topic_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topics_without(monkeypatch, READ_BEFORE)
    history = cut_over()
    give_back(history)
    text = f"{ORDERS}: {BILLING} had not drained segments [0], which COMMIT took away"
    only(history, CheckName.DRAINING, text)


@pytest.mark.parametrize("parts", [1, 3])
def test_a_sound_adoption_passes_every_check(parts: int) -> None:
    history = adopted()
    history.tenant("acme")
    history.namespace("acme/shop", 2)
    topics.delete(history)  # it is released, and another namespace may have it
    adopt(history, OTHER, f"acme/shop={OLD}")
    topics.subscribe(history, name=OTHER)
    middle = history.snapshot()
    topics.begin(history, (0,), OTHER, prepare=2)
    topics.commit(history, OTHER)
    topics.drain(history, (0,), name=OTHER)
    prune = topics.topic_move(history, TopicMove.PRUNE, OTHER, segment_ids=(0,))
    history.accepted(prune)
    adopt(history)
    findings = audited(history, parts=parts, snapshot=middle)
    assert violated(findings) == []
    (check,) = (each for each in findings.checks if each.name is CheckName.ADOPTION)
    assert check.examined > 8


@pytest.mark.parametrize("entry", ["", "public/default=new-*", "acme/shop=old-*"])
def test_an_adoption_that_no_entry_of_its_record_allows_is_found(
    monkeypatch: pytest.MonkeyPatch, entry: str
) -> None:
    topics_without(monkeypatch, ADOPTABLE)
    only(adopted(entry), CheckName.ADOPTION, f"Kafka topic {OLD} was adopted, but ")


def test_a_second_adoption_in_a_namespace_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    topics_without(monkeypatch, ADOPTED_ONCE)
    history = adopted()
    adopt(history, "public/default/again")
    text = f"public/default/again: adopted Kafka topic {OLD}, which {ORDERS} had"
    only(history, CheckName.ADOPTION, text)


@pytest.mark.parametrize("parts", [1, 2, 5])
def test_a_second_adoption_by_another_tenant_is_found_however_the_log_is_divided(
    parts: int,
) -> None:
    """The fold cannot see it. Two nodes had settings that exclude each other."""
    history = adopted()
    history.tenant("acme")
    history.namespace("acme/shop", 2)
    adopt(history, OTHER, f"acme/shop={OLD}")
    text = f"{OTHER}: adopted Kafka topic {OLD}, which {ORDERS} had"
    only(history, CheckName.ADOPTION, text, parts=parts)


def test_a_second_adoption_is_found_from_a_snapshot_that_has_the_first() -> None:
    history = adopted()
    taken = history.snapshot()
    history.tenant("acme")
    history.namespace("acme/shop", 2)
    adopt(history, OTHER, f"acme/shop={OLD}")
    begins = taken.horizon.next_offset
    text = f"{OTHER}: adopted Kafka topic {OLD}, which {ORDERS} had"
    only(history, CheckName.ADOPTION, text, snapshot=taken, without_before=begins)


def test_adoptions_one_after_another_are_sound_and_each_overlap_is_told() -> None:
    first = Adopted(OLD, 10, 20, "a")
    later = [Adopted(OLD, 20, 30, "b"), Adopted("else", 5, HELD_YET, "c")]
    assert not check_adoption([*later, first]).violated
    within = [Adopted(OLD, 12, 14, "d"), Adopted(OLD, 19, HELD_YET, "e")]
    found = [offset for offset, _ in told(check_adoption([first, *within]))]
    assert found == [12, 19]


def test_an_adopted_topic_that_is_split_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    topics_without(monkeypatch, CUTS_OVER)
    history = adopted()
    topics.begin(history, (0,))
    only(history, CheckName.ADOPTION, f"a SPLIT replaces adopted Kafka topic {OLD}")


def test_a_child_that_is_somebodys_kafka_topic_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    topics_without(monkeypatch, CUTS_OVER)
    history = adopted()
    children = topic_of(history).layout.prepare_children(1)
    stolen = tuple(replace(each, legacy_topic="theirs") for each in children)
    fields: dict[str, Any] = {"segments": stolen, "parents": (0,), "operation": Operation.PREPARE}
    history.accepted(topics.topic_move(history, TopicMove.BEGIN, **fields))
    only(history, CheckName.ADOPTION, "BEGIN makes a segment of Kafka topic theirs")


def _seen(check: Adoption | Seals, history: History, after: ScalableTopic, move: TopicMove) -> Any:
    record = topics.topic_move(history, move, segment_ids=(0,) if move is TopicMove.PRUNE else ())
    assert isinstance(record, TopicChange)
    check.changed(99, record, topic_of(history), after)
    return told(check.tally)


def test_an_adopted_topic_that_is_to_be_deleted_in_kafka_is_found() -> None:
    history = cut_over()
    topic = topic_of(history)
    after = replace(topic, segments=topic.segments[1:], garbage=topic.segments[:1])
    found = f"{ORDERS}: adopted Kafka topic {OLD} is to be deleted in Kafka"
    assert _seen(Adoption(), history, after, TopicMove.PRUNE) == [(99, found)]


def test_a_segment_that_becomes_a_kafka_topic_of_others_is_found() -> None:
    history = cut_over()
    after = with_part(1, legacy_topic="theirs")(topic_of(history))
    found = f"{ORDERS}: UPDATE made a segment of Kafka topic theirs"
    assert _seen(Adoption(), history, after, TopicMove.UPDATE) == [(99, found)]


@pytest.mark.parametrize(
    ("field", "value"), [("legacy_topic", "else"), ("partitioner", "crc32"), ("buckets", 4)]
)
def test_an_adopted_segment_stays_what_it_is(field: str, value: object) -> None:
    history = adopted()
    after = with_part(0, **{field: value})(topic_of(history))
    ((_, text),) = _seen(Seals(), history, after, TopicMove.UPDATE)
    assert text.startswith(f"{ORDERS}: the {field} of active segment 0 was ")


def test_a_child_that_is_drained_before_the_adopted_topic_is_found() -> None:
    history = cut_over()
    topics.begin(history, (1,))
    topics.commit(history)
    record = topics.subscription_move(history, SubscriptionOp.DRAINED, BILLING, segment_ids=(1,))
    check = Draining()
    known = history.state.subscription(ORDERS, BILLING)
    assert known is not None
    check.start(ORDERS, BILLING, known)
    check.subscription_changed(99, record, topic_of(history), replace(known, drained=(1,)))
    text = f"{ORDERS}/{BILLING}: segment 1 is called drained before segments [0] above it"
    assert told(check.tally) == [(99, text)]


@pytest.mark.parametrize(("end", "what"), [(101, "data after its seal"), (99, "lost data")])
def test_what_one_partition_of_an_adopted_topic_has_after_its_seal_is_found(
    end: int, what: str
) -> None:
    kafka = SegmentEnds({(ORDERS, 0): (100, 100, end)}, {})
    text = f"segment 0000-ffff-0 partition 2: {what}"
    only(cut_over(), CheckName.SEGMENTS, text, segment_ends=kafka)


def test_a_child_that_took_a_key_while_its_partition_of_the_adopted_topic_did_is_found() -> None:
    """The key's partition is the one that its writers' partitioner gives."""
    topic = topic_of(cut_over())
    key = b"order-17"
    parent, *children = topic.segments
    child = next(each for each in children if segment_hash(hash32(key)) in each)
    left = TopicsLeft(sealed=[SealedSegment(ORDERS, 1, parent, 33, tuple(children))])
    partition = partition_of(Partitioner.MURMUR2, key, 3)
    firsts = {
        (ORDERS, child.segment_id, bucket): Edge(key, 1_000, by_broker=True)
        for bucket in range(child.buckets)
    }
    for bucket in range(3):
        lasts = {(ORDERS, 0, bucket): Edge(None, 2_000, by_broker=True)}
        tally, _ = check_order(left, Edges(firsts, lasts), 250)
        assert bool(tally.violated) == (bucket == partition)
