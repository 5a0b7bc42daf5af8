"""Where a sealed segment ends: what is believed of Kafka's answers, and what is asked again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from anabranch.channel.errors import KafkaAccessError, SegmentExistsError
from anabranch.channel.kafka.connection import KafkaConnection
from anabranch.channel.kafka.deadline import Deadline
from anabranch.channel.segments import admin
from anabranch.channel.segments.seal_settings import seal_in
from anabranch.channel.segments.sealing import SegmentTopic
from anabranch.core.topics.kafka_names import FUTURE_MS_MAX
from support.sealable_kafka import Partition, SealableKafka
from support.told_offsets import ToldOffset
from support.waiting import WAIT_S


def sealed(
    kafka: SealableKafka, *, seconds: float = WAIT_S, asks: bool = False
) -> dict[str, tuple[int, ...]]:
    """`asks`: brokers by connections of its own."""
    deadline = Deadline(cast(KafkaConnection, kafka), seconds, lambda: None)
    topics = [SegmentTopic(name, len(parts)) for name, parts in kafka.topics.items()]
    return kafka.sealer(asks=asks).seal(topics, deadline)


def test_a_quiet_segment_ends_where_its_log_does() -> None:
    kafka = SealableKafka(a=[Partition(3, 3), Partition(0, 0)], b=[Partition(7, 7)])
    assert sealed(kafka) == {"a": (3, 0), "b": (7,)}


def test_what_was_accepted_and_not_yet_replicated_counts() -> None:
    assert sealed(SealableKafka(a=[Partition(5, 3), Partition(9, 9)])) == {"a": (5, 9)}


def test_a_follower_that_never_catches_up_leaves_the_end_unknown() -> None:
    kafka = SealableKafka(catches_up=False, a=[Partition(5, 3)])
    with pytest.raises(TimeoutError, match="topic a"):
        sealed(kafka, seconds=0.6)


@pytest.mark.parametrize("late", [(1,), (2,), (2, 4), (1, 2)])
def test_an_append_that_had_passed_the_size_check_and_lands_between_two_looks_counts(
    late: tuple[int, ...],
) -> None:
    assert sealed(SealableKafka(a=[Partition(4, 4, late=late)])) == {"a": (4 + len(late),)}


def test_what_is_being_appended_while_others_are_refused_already_is_waited_for() -> None:
    kafka = SealableKafka(
        a=[Partition(4, 4), Partition(4, 4, begun=3)], b=[Partition(1, 1, begun=1)]
    )
    kafka.lockless = 2
    assert sealed(kafka) == {"a": (4, 7), "b": (2,)}


def test_without_a_word_of_the_lock_the_end_is_unknown() -> None:
    kafka = SealableKafka(a=[Partition(4, 4)])
    kafka.lockless = 1 << 40
    with pytest.raises(TimeoutError, match="topic a"):
        sealed(kafka, seconds=0.3)


def test_a_record_beyond_the_end_is_a_sign_that_it_is_not_the_end() -> None:
    kafka = SealableKafka(a=[Partition(9, 9), Partition(5, 5)])
    sealer = kafka.sealer()
    deadline = Deadline(cast(KafkaConnection, kafka), WAIT_S, lambda: None)
    assert not sealer._nothing_beyond({("a", 0): (7, 0), ("a", 1): (5, 0)}, deadline, "")
    assert not sealer._nothing_beyond({("a", 0): (9, 0), ("a", 1): (4, 0)}, deadline, "")
    assert sealer._nothing_beyond({("a", 0): (9, 0), ("a", 1): (5, 0)}, deadline, "")


def test_a_partition_is_asked_until_it_refuses_for_the_size() -> None:
    slow = Partition(2, 2, obeys_after=3)
    assert (sealed(SealableKafka(a=[Partition(1, 1), slow])), slow.probes) == ({"a": (1, 2)}, 4)
    first = Partition(2, 2, obeys_after=3)
    other = Partition(1, 1)
    assert sealed(SealableKafka(a=[first, other])) == {"a": (2, 1)}
    assert (first.probes, other.probes) == (4, 1)  # until one refuses, the others are left alone


def test_a_partition_that_never_obeys_is_never_called_sealed() -> None:
    kafka = SealableKafka(a=[Partition(2, 2, obeys_after=1 << 40)])
    with pytest.raises(TimeoutError, match="whether topic a, partition 0, is sealed"):
        sealed(kafka, seconds=0.3)


def test_the_offsets_are_looked_at_again_when_a_partition_did_not_obey_at_once() -> None:
    kafka = SealableKafka(a=[Partition(1, 1), Partition(4, 4, obeys_after=2, late=(1,))])
    assert sealed(kafka) == {"a": (1, 5)}
    slow = Partition(4, 4, obeys_after=2, late=(2,))
    assert sealed(SealableKafka(a=[Partition(1, 1), slow])) == {"a": (1, 5)}
    assert slow.looks == 3  # while it was open, when it was sealed, and once more


def test_a_look_that_is_not_answered_is_given_up_in_time_for_another() -> None:
    kafka = SealableKafka(a=[Partition(1, 1)])
    sealed(kafka)
    assert all(0 < seconds < WAIT_S / 2 for seconds in kafka.look_s)


def test_a_partition_whose_offset_is_not_told_is_looked_at_again_by_itself() -> None:
    kafka = SealableKafka(a=[Partition(3, 3), Partition(4, 4)])
    asked: list[set[int]] = []
    look = kafka.offsets_for_times

    def offsets_for_times(places: Sequence[TopicPartition], timeout: float) -> list[ToldOffset]:
        asked.append({place.partition for place in places})
        answers = look(places, timeout)
        if len(asked) == 1:
            answers[1].error = KafkaError(KafkaError.LEADER_NOT_AVAILABLE)
        return answers

    kafka.offsets_for_times = offsets_for_times  # type: ignore[method-assign, assignment]
    assert (sealed(kafka), asked) == ({"a": (3, 4)}, [{0, 1}, {1}, {0, 1}])


@pytest.mark.parametrize("right", ["write", "read"])
def test_a_right_that_is_lacking_is_told_at_once(right: str) -> None:
    kafka = SealableKafka(a=[Partition(3, 3)])
    kafka.refused.add(right)
    with pytest.raises(KafkaAccessError, match="topic a"):
        sealed(kafka)


def test_the_leaders_of_all_but_one_topic_are_looked_up_while_they_take_appends() -> None:
    kafka = SealableKafka(a=[Partition(1, 1)], b=[Partition(2, 2)], c=[Partition(3, 3)])
    looked_up: list[tuple[str, bool]] = []
    list_topics = kafka.list_topics

    def noted(topic: str, timeout: float) -> Any:
        looked_up.append((topic, bool(kafka.topics[topic][0].settings)))
        return list_topics(topic, timeout)

    kafka.list_topics = noted  # type: ignore[method-assign, assignment]
    sealed(kafka)
    assert looked_up[:6] == [*[("b", False)] * 2, *[("c", False)] * 2, *[("a", True)] * 2]


def test_the_settings_refuse_every_append_and_store_no_probe() -> None:
    kafka = SealableKafka(a=[Partition(1, 1)])
    sealed(kafka)
    assert kafka.topics["a"][0].settings == {
        "max.message.bytes": "78",
        "compression.type": "gzip",
        "message.timestamp.type": "CreateTime",
        "message.timestamp.after.max.ms": str(FUTURE_MS_MAX),
    }


def test_a_topic_that_is_gone_ends_where_it_began_and_the_others_where_they_do() -> None:
    kafka = SealableKafka(a=[Partition(3, 3)], b=[Partition(5, 5), Partition(6, 6)])
    kafka.deleted.add("b")
    assert sealed(kafka) == {"a": (3,), "b": (0, 0)}
    kafka.hesitates.add("a")
    assert sealed(kafka) == {"a": (3,), "b": (0, 0)}
    nothing = SealableKafka(a=[Partition(3, 3)])
    nothing.deleted.add("a")
    assert sealed(nothing) == {"a": (0,)}


def test_an_unknown_epoch_of_a_leader_is_no_reason_to_give_up() -> None:
    kafka = SealableKafka(a=[Partition(3, 3, epoch=-1), Partition(4, 4, epoch=None)])
    assert sealed(kafka) == {"a": (3, 4)}
    assert [epoch for *_, epoch in kafka.put_behind] == [None, None]


def test_a_probe_is_an_empty_record_that_says_so_and_is_of_a_time_that_no_open_segment_takes() -> (
    None
):
    kafka = SealableKafka(a=[Partition(1, 1)])
    sealed(kafka)
    (probe,) = kafka.probes
    assert probe == {"value": b"", "timestamp": 1 << 55, "headers": [("anabranch-probe", b"")]}


def test_a_probe_leaves_no_sequence_numbers_and_is_not_tried_again() -> None:
    kafka = SealableKafka()
    kafka.sealer()
    assert kafka.producing == {
        "enable_idempotence": False,
        "acks": 1,
        "message_send_max_retries": 0,
        "message_timeout_ms": 5_000,
    }


def test_a_leader_is_asked_for_its_logs_end_under_its_epoch_where_that_is_known() -> None:
    kafka = SealableKafka(
        a=[Partition(3, 3, epoch=5), Partition(4, 4, epoch=0), Partition(6, 6, epoch=-1)]
    )
    assert sealed(kafka) == {"a": (3, 4, 6)}
    assert kafka.put_behind == [("a", 0, 4, 5), ("a", 1, 5, 0), ("a", 2, 7, None)]


def test_of_a_topic_that_was_made_anew_with_fewer_partitions_nobody_knows_the_ends() -> None:
    kafka = SealableKafka(a=[Partition(3, 3), Partition(4, 4)], b=[Partition(1, 1)])
    deadline = Deadline(cast(KafkaConnection, kafka), WAIT_S, lambda: None)
    topics = [SegmentTopic("b", 1), SegmentTopic("a", 3)]
    with pytest.raises(SegmentExistsError) as raised:
        kafka.sealer().seal(topics, deadline)
    assert str(raised.value) == str(SegmentExistsError("a", 2, 3))


def test_a_partition_that_kafka_does_not_know_for_a_while_is_asked_for_again() -> None:
    kafka = SealableKafka(a=[Partition(3, 3)])
    sealed_later = Partition(4, 4, settings={"max.message.bytes": "78"})
    looks, known, early = 0, kafka.list_topics, [1, 2]  # leaders and copies are not told at first

    def list_topics(name: str, timeout: float) -> Any:
        nonlocal looks
        looks += bool(kafka.probes)
        if looks in (1, 3, 4) or (
            early and early.pop()
        ):  # of the partitions, and of who leads them
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))
        if looks == 2:
            kafka.topics["a"] = [*kafka.topics["a"], sealed_later]
        return known(name, timeout)

    kafka.list_topics = list_topics  # type: ignore[method-assign]
    deadline = Deadline(cast(KafkaConnection, kafka), WAIT_S, lambda: None)
    assert kafka.sealer().seal([SegmentTopic("a", 2)], deadline) == {"a": (3, 4)}


@pytest.mark.parametrize(
    ("asks", "silent", "by_librdkafka"),
    [(False, (), {1, 2, 3, 4}), (True, (), set()), (True, (4,), {4})],
)
def test_every_broker_that_has_a_copy_has_put_the_seal_into_force_before_a_leader_is_probed(
    asks: bool, silent: tuple[int, ...], by_librdkafka: set[int]
) -> None:
    kafka = SealableKafka(
        a=[Partition(3, 3, replicas=(1, 2)), Partition(4, 4, replicas=(3, 1, 9)), Partition(5, 5)],
        b=[Partition(6, 6, replicas=(1, 4))],
    )
    kafka.brokers = {1, 2, 3, 4, 5}  # 9 is gone, and 5 has no copy
    kafka.lags, kafka.silent = {2: 1, 4: 3}, set(silent)
    assert sealed(kafka, asks=asks) == {"a": (3, 4, 5), "b": (6,)}
    assert kafka.described == by_librdkafka
    assert kafka.obeying == set(kafka.read) == {1, 2, 3, 4}
    stamps = {int(kafka.changes[name][-1]["message.timestamp.after.max.ms"]) for name in "ab"}
    assert all(FUTURE_MS_MAX < stamp < 1 << 55 for stamp in stamps)


def test_a_broker_that_read_of_seal_and_stamp_in_one_round_is_asked_for_another_stamp() -> None:
    """It shows settings before it puts them into force, so one look at both proves nothing."""
    kafka = SealableKafka(a=[Partition(3, 3, replicas=(1, 2))])
    kafka.brokers, kafka.in_one_round, kafka.lags = {1, 2}, {2}, {2: 1}
    assert sealed(kafka, asks=True) == {"a": (3,)}
    assert kafka.obeying == {1, 2}
    assert len(kafka.changes["a"]) == 3  # the seal and two stamps


def test_a_broker_that_leaves_before_it_obeys_holds_nothing_up() -> None:
    kafka = SealableKafka(a=[Partition(3, 3, replicas=(1, 2))])
    kafka.brokers, kafka.lags = {1, 2}, {2: 1 << 40}
    known, looks = kafka.list_topics, 0

    def list_topics(name: str, timeout: float) -> Any:
        nonlocal looks
        looks += 1
        if looks == 8:  # long after the other one has obeyed
            kafka.brokers.discard(2)
        return known(name, timeout)

    kafka.list_topics = list_topics  # type: ignore[method-assign]
    assert sealed(kafka, asks=True) == {"a": (3,)}


def test_a_broker_with_the_only_copy_of_a_partition_is_asked_where_others_have_several() -> None:
    kafka = SealableKafka(a=[Partition(3, 3, replicas=(1, 2)), Partition(4, 4, replicas=(3,))])
    kafka.brokers = {1, 2, 3}
    assert sealed(kafka, asks=True) == {"a": (3, 4)}
    assert kafka.obeying == {1, 2, 3}


def test_one_stamp_is_enough_where_each_broker_reads_of_seal_and_stamp_apart() -> None:
    kafka = SealableKafka(a=[Partition(3, 3, replicas=(1, 2))], b=[Partition(1, 1, replicas=(1,))])
    kafka.brokers = {1, 2}
    assert sealed(kafka, asks=True) == {"a": (3,), "b": (1,)}
    assert [len(each) for each in kafka.changes.values()] == [2, 2]


def test_the_end_that_a_former_leader_tells_is_not_believed() -> None:
    """It does not know yet that it is none; what is appended by the next one, it has not."""
    part = Partition(3, 3, replicas=(1, 2), epoch=4)
    kafka = SealableKafka(a=[part])
    kafka.brokers, kafka.shown = {1, 2}, {("a", 0): 5}
    known = kafka.list_topics

    def list_topics(name: str, timeout: float) -> Any:
        if part.looks:  # now the client hears who leads
            part.end = part.replicated = 7
            part.epoch = 5
        return known(name, timeout)

    kafka.list_topics = list_topics  # type: ignore[method-assign]
    assert sealed(kafka, asks=True) == {"a": (7,)}


def test_closing_ends_both_clients() -> None:
    kafka = SealableKafka(a=[Partition(1, 1)])
    kafka.sealer().close()
    assert (kafka.patience, kafka.closed) == ([2.0], 1)


def test_the_end_counts_what_transactions_have_not_committed_yet() -> None:
    kafka = SealableKafka()
    kafka.sealer()
    assert kafka.isolation == "read_uncommitted"


# --- requests to Kafka about segments are cut to what Kafka takes at once -------------------------


KAFKA_RECORDS_MAX = 10_000


@pytest.mark.parametrize(("count", "partitions"), [(1, 1024), (3, 2), (2_000, 1), (2_000, 40)])
def test_no_request_makes_more_records_than_kafka_takes_and_none_is_left_out(
    count: int, partitions: int
) -> None:
    topics = [SegmentTopic(f"t{number}", partitions) for number in range(count)]
    runs = list(admin.together(topics, admin._RECORDS_AT_ONCE, admin._RECORDS_OF_TOPIC))
    assert [topic for run in runs for topic in run] == topics
    four = [SegmentTopic(name, 2) for name in "abcd"]
    assert list(admin.together(four, 6, 1)) == [four[:2], four[2:]]
    records = [sum(10 + topic.partitions for topic in run) for run in runs]
    assert max(records) < KAFKA_RECORDS_MAX
    assert len(runs) <= 1 + sum(records) // 8_000


def seal_in_turn(kafka: SealableKafka) -> None:
    """One sealer seals a and then b."""
    sealer = kafka.sealer()
    for name in ("a", "b"):
        deadline = Deadline(cast(KafkaConnection, kafka), WAIT_S, lambda: None)
        sealer.seal([SegmentTopic(name, 1)], deadline)


@pytest.mark.parametrize("way", ["ignored", "forbidden"])
def test_a_kafka_that_does_not_keep_the_compression_gets_a_limit_that_no_batch_passes(
    way: str,
) -> None:
    first, second = Partition(3, 3), Partition(1, 1)
    kafka = SealableKafka(a=[first], b=[second])
    getattr(kafka, way).add("compression.type")
    seal_in_turn(kafka)
    assert {each.settings["max.message.bytes"] for each in (first, second)} == {"1"}
    assert "compression.type" not in kafka.changes["b"][0], "it was known by then"
    assert seal_in(first.settings) == {"max.message.bytes": "1"}


def test_the_first_seal_alone_is_read_back() -> None:
    kafka = SealableKafka(a=[Partition(3, 3)], b=[Partition(1, 1)])
    seal_in_turn(kafka)
    assert kafka.read_back == ["a"]


def test_a_kafka_that_takes_the_seal_and_keeps_nothing_of_it_never_counts_as_sealed() -> None:
    kafka = SealableKafka(a=[Partition(3, 3)])
    kafka.ignored |= {"max.message.bytes", "compression.type"}
    with pytest.raises(TimeoutError, match=r"max\.message\.bytes=78 of topic a back"):
        sealed(kafka, seconds=0.3)
