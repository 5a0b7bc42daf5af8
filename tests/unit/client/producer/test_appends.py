"""How batches go to Kafka's brokers: when, which, under which number, and what an answer leads to.

The test plays Kafka, on a clock that stands still.
"""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from anabranch import client as sdk
from anabranch.client import Segment
from anabranch.client._producer.batch import ProducerId
from anabranch.core.entities.segment import legacy_segment
from anabranch.core.partitioners import Partitioner
from anabranch.wire.kafka.link import LinkLostError
from anabranch.wire.kafka.producing import KafkaCode
from anabranch.wire.kafka.protocol import KafkaProtocolError
from support.opening import Opening
from support.sending_stage import SendingStage, staged
from support.still_watch import layout_of
from support.wire import on_both_loops

_LOST = "the connection ended"


@pytest.fixture
def stage() -> Opening:
    return Opening(staged)


# --- what goes together, and when ---------------------------------------------------------------


async def test_a_broker_gets_one_request_at_a_time_with_a_batch_of_each_bucket(
    stage: SendingStage,
) -> None:
    stage.send(b"first")
    first = await stage.request()
    for number, bucket in enumerate((0, 1, 2, 0, 1)):
        stage.send(b"%d" % number, bucket)
    assert await stage.is_quiet()
    first.answers()
    following = await stage.request()
    batches = {place[1]: each.values for place, each in following.batches.items()}
    assert batches == {0: [b"0", b"3"], 1: [b"1", b"4"], 2: [b"2"]}
    assert await stage.is_quiet()


async def test_a_batch_waits_for_company_as_long_as_it_lingers_and_no_longer() -> None:
    async with staged(linger_ms=5.0) as stage:
        stage.send(b"one")
        stage.at += 0.004
        stage.dispatcher.appends._send_lingering()
        stage.send(b"two")
        assert await stage.is_quiet()
        stage.at += 0.002
        assert (await stage.request()).values == [b"one", b"two"]


@pytest.mark.parametrize("is_hurried", [False, True])
async def test_a_batch_that_is_full_or_hurried_does_not_linger(is_hurried: bool) -> None:
    async with staged(linger_ms=60_000.0, max_message_bytes=2_000) as stage:
        await stage.dispatcher.start()
        assert await stage.is_quiet(), "it is ready to send"
        stage.send(b"1" + bytes(1_500))
        if is_hurried:
            stage.dispatcher.appends.hurry()
        else:
            stage.send(b"2" + bytes(1_500))
        assert (await stage.request()).only.values == [b"1" + bytes(1_500)]
        assert await stage.is_quiet()


@on_both_loops
async def test_batches_that_fill_one_after_the_other_are_taken_on_each_event_loop() -> None:
    async with staged(linger_ms=60_000.0, max_message_bytes=2_000) as stage:
        await stage.dispatcher.start()
        for number in range(4):
            stage.send(b"%d" % number + bytes(1_500), number % 2)
        assert len((await stage.request()).batches) == 2


async def test_what_has_lingered_meanwhile_follows_the_answer_at_once() -> None:
    async with staged(linger_ms=5.0) as stage:
        stage.send(b"one")
        stage.at += 0.006
        first = await stage.request()
        stage.send(b"two")
        stage.at += 0.006
        stage.dispatcher.appends._send_lingering()
        first.answers()
        assert (await stage.request()).values == [b"two"]


async def test_a_segment_whose_topic_is_missing_keeps_no_producer_from_beginning() -> None:
    async with staged(segments=2) as stage:
        del stage.kafka.leaders["t1"]
        await stage.dispatcher.start()
        stage.send(b"one")
        assert (await stage.request()).values == [b"one"]


async def test_what_is_in_doubt_keeps_its_number_where_a_former_leader_finds_a_gap() -> None:
    async with staged(copies=3) as stage:
        stage.send(b"one")
        first = await stage.request()
        first.fails(LinkLostError(_LOST, was_written=True))
        again = await stage.request()
        assert again.only.data == first.only.data
        again.answers(KafkaCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
        last = await stage.request()
        assert last.only.data == first.only.data
        last.answers(offset=7)
        await stage.settled(b"one")
        result = stage.told[b"one"]
        assert isinstance(result, sdk.DeliveryResult)
        assert result.offset == 7


async def test_a_fault_while_an_answer_is_taken_keeps_nothing_from_being_sent(
    stage: SendingStage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    stage.send(b"one")
    first = await stage.request()
    stage.send(b"two")
    appends = stage.dispatcher.appends
    sound = appends._acked

    def faulty(*_: object) -> None:
        monkeypatch.setattr(appends, "_acked", sound)
        raise RuntimeError("the test says so")

    monkeypatch.setattr(appends, "_acked", faulty)
    first.answers()
    assert (await stage.request()).values == [b"two"]
    assert "the test says so" in caplog.text


# --- what an answer leads to ----------------------------------------------------------------------


async def test_whoever_waits_gets_the_place_of_each_message_and_kafka_s_time_if_it_has_one(
    stage: SendingStage,
) -> None:
    for appended_ms, time_ms in ((-1, 1), (1_234, 1_234)):
        values = [b"%d-%d" % (appended_ms, number) for number in range(3)]
        for value in values:
            stage.send(value)
        (await stage.request()).answers(offset=40, appended_ms=appended_ms)
        await stage.settled(*values)
        assert [stage.told[value] for value in values] == [
            sdk.DeliveryResult("topic://public/default/orders", 0, 0, offset, time_ms)
            for offset in (40, 41, 42)
        ]
    assert (stage.dispatcher.under_way.count, stage.dispatcher.under_way.bytes) == (0, 0)


async def test_it_is_counted_how_full_batches_are(stage: SendingStage) -> None:
    size = 0
    for count in (1, 3):
        for number in range(count):
            stage.send(b"%d %d" % (count, number), 2)
        request = await stage.request()
        size += len(request.only.data)
        request.answers()
        await stage.settled(b"%d 0" % count)
    (told,) = stage.dispatcher.batch_stats()
    assert told == sdk.BatchStats(0, 2, 2, 4, size, 1_000_000)
    assert (told.mean_messages, told.mean_bytes) == (2.0, size / 2)


async def test_a_batch_follows_its_leader_under_the_number_that_it_had(stage: SendingStage) -> None:
    stage.send(b"zero")
    (await stage.request()).answers()
    stage.send(b"one")
    first = await stage.request()
    stage.kafka.leaders["t0"] = [2] * 4
    first.answers(KafkaCode.NOT_LEADER_OR_FOLLOWER)
    again = await stage.request()
    assert (first.address[0], again.address[0]) == ("0", "2")
    assert (again.only.data, again.only.sequence) == (first.only.data, 1)
    again.answers()
    await stage.settled(b"one")


async def test_what_waited_behind_a_broker_that_does_not_answer_goes_to_its_next_leader(
    stage: SendingStage,
) -> None:
    stage.send(b"one", 0)
    first = await stage.request()
    stage.send(b"two", 1)
    assert await stage.is_quiet()
    stage.kafka.leaders["t0"] = [2] * 4
    first.fails(LinkLostError(_LOST, was_written=True))
    values: list[bytes] = []
    while len(values) < 2:
        request = await stage.request()
        assert request.address[0] == "2"
        values += request.values
        request.answers()
    assert sorted(values) == [b"one", b"two"]


async def test_a_partition_of_which_kafka_says_nothing_is_tried_again(stage: SendingStage) -> None:
    stage.send(b"one", 0)
    stage.send(b"two", 1)
    first = await stage.request()
    first.answers(but={1: None})
    await stage.settled(b"one")
    assert (await stage.request()).only.data == first.batches["t0", 1].data


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (LinkLostError(_LOST, was_written=False), sdk.DeliveryError),
        (LinkLostError(_LOST, was_written=True), sdk.UnknownOutcomeError),
        (KafkaProtocolError("it was cut short"), sdk.UnknownOutcomeError),
    ],
)
async def test_what_a_lost_link_has_written_is_in_doubt_and_what_it_has_not_is_not(
    stage: SendingStage, error: Exception, kind: type[Exception]
) -> None:
    writer = stage.send(b"one")
    (await stage.request()).fails(error)
    (await stage.request()).fails(LinkLostError(_LOST, was_written=False))
    stage.kafka.no_leaders = ConnectionRefusedError("nobody is there")
    await stage.pass_s(12)
    told = await stage.error_of(b"one")
    assert type(told) is kind
    assert writer.where in str(told)


async def test_what_kafka_will_never_take_fails_in_words_and_leaves_its_number_to_the_next(
    stage: SendingStage,
) -> None:
    stage.send(b"old")
    first = await stage.request()
    stage.send(b"new")
    first.answers(KafkaCode.INVALID_TIMESTAMP)
    error = await stage.error_of(b"old")
    assert type(error) is sdk.DeliveryError
    assert "event time" in str(error)
    following = (await stage.request()).only
    assert (following.values, following.sequence) == ([b"new"], 0)
    assert following.producer_id == first.only.producer_id


@pytest.mark.parametrize(
    "code", [KafkaCode.OUT_OF_ORDER_SEQUENCE_NUMBER, KafkaCode.UNKNOWN_PRODUCER_ID]
)
async def test_where_kafka_knows_the_producer_no_more_the_same_goes_on_under_another_id(
    stage: SendingStage, code: KafkaCode
) -> None:
    stage.send(b"zero")
    (await stage.request()).answers()
    stage.send(b"one")
    first = await stage.request()
    stage.send(b"two")
    first.answers(code)
    sent = []
    for sequence in (0, 1):
        request = await stage.request()
        sent += request.values
        assert request.only.sequence == sequence
        assert request.only.producer_id != first.only.producer_id
        request.answers()
    assert sent == [b"one", b"two"]
    await stage.settled(b"one", b"two")


async def test_after_something_in_doubt_was_given_up_its_id_is_never_used_again(
    stage: SendingStage,
) -> None:
    ids: list[tuple[int, int]] = []
    for bucket in (0, 1, 0, 1):
        value = b"%d" % len(ids)
        stage.send(value, bucket)
        request = await stage.request()
        ids.append((bucket, request.only.producer_id))
        assert request.only.sequence == 0
        await stage.pass_s(12)
        assert type(await stage.error_of(value)) is sdk.UnknownOutcomeError
        request.fails(LinkLostError(_LOST, was_written=True))
    assert len(set(ids)) == 4, "of each bucket"


async def test_a_client_that_kafka_throttles_leaves_that_broker_alone_and_no_other(
    stage: SendingStage,
) -> None:
    stage.kafka.leaders["t0"] = [0, 1, 0, 0]
    stage.send(b"one", 0)
    (await stage.request()).answers(throttle_ms=600_000)
    stage.send(b"two", 0)
    stage.send(b"there", 1)
    assert (await stage.request()).values == [b"there"]
    assert await stage.is_quiet()
    stage.dispatcher.appends._free(("0", 9092))  # as it is when that time is over
    assert (await stage.request()).values == [b"two"]


async def test_throttling_ends_by_itself(stage: SendingStage) -> None:
    stage.send(b"one")
    (await stage.request()).answers(throttle_ms=1)
    stage.send(b"two")
    assert (await stage.request()).values == [b"two"]


# --- what Kafka does not tell ---------------------------------------------------------------------


async def test_messages_to_a_topic_that_one_may_not_write_to_fail_until_one_may(
    stage: SendingStage,
) -> None:
    leaders = stage.kafka.leaders["t0"]
    stage.kafka.leaders["t0"] = int(KafkaCode.TOPIC_AUTHORIZATION_FAILED)
    for value in (b"one", b"two"):
        stage.send(value)
        error = await stage.error_of(value)
        assert type(error) is sdk.DeliveryError
        assert "authorization failed" in str(error)
    stage.kafka.leaders["t0"] = leaders
    stage.send(b"three")
    (await stage.request()).answers()
    await stage.settled(b"three")
    assert isinstance(stage.told[b"three"], sdk.DeliveryResult)


async def test_whoever_sends_is_told_when_kafka_gives_no_producer_id_and_goes_on_when_it_does(
    stage: SendingStage,
) -> None:
    stage.kafka.no_id = KafkaProtocolError("it takes IDEMPOTENT_WRITE")
    stage.send(b"one")
    error = await stage.error_of(b"one")
    assert type(error) is sdk.DeliveryError
    assert "it takes IDEMPOTENT_WRITE" in str(error)
    stage.kafka.no_id = None
    stage.send(b"two")
    assert (await stage.request()).values == [b"two"]


async def test_leaders_and_ids_that_nobody_tells_just_now_are_asked_for_again(
    stage: SendingStage,
) -> None:
    stage.kafka.no_leaders = stage.kafka.no_id = ConnectionRefusedError("nobody is there")
    writer = stage.send(b"one")
    assert await stage.is_quiet()
    stage.kafka.no_leaders = stage.kafka.no_id = None
    assert (await stage.request()).values == [b"one"]
    assert writer.producer == ProducerId(stage.kafka.ids, 0)


async def test_an_adopted_topic_that_is_given_back_is_written_under_another_producer_id(
    stage: SendingStage,
) -> None:
    """Kafka would take a first number under the former id for a message that it has."""
    old = legacy_segment("old", "", 4, Partitioner.MURMUR2.value)
    stage.kafka.leaders |= {"old": [0] * 4}
    found: list[tuple[int, int]] = []
    for life in range(3):  # from one to the next all is sealed, and opened again
        part = Segment(replace(old, segment_id=life), "old")
        stage.layout = replace(layout_of(stage.plain), epoch=life + 2, segments={life: part})
        stage.dispatcher.update(stage.layout)
        for bucket in (0, 0, 1):
            stage.send(b"%d-%d" % (life, len(found)), bucket)
            request = await stage.request()
            found.append((request.only.producer_id, request.only.sequence))
            request.answers()
            await stage.settled(b"%d-%d" % (life, len(found) - 1))
    ids = [each for each, _ in found]
    assert [sequence for _, sequence in found] == [0, 1, 0] * 3
    assert ids == [ids[0]] * 3 + [ids[0] + 1] * 3 + [ids[0] + 2] * 3


async def test_what_an_adopted_topic_that_is_given_back_cannot_take_holds_up_nothing_else(
    stage: SendingStage,
) -> None:
    """It was taken for segments, which take more."""
    stage.send(b"small")
    (await stage.request()).answers(KafkaCode.MESSAGE_TOO_LARGE)
    stage.kafka.leaders |= {"old": [0] * 4}
    large = bytes(2_000)
    stage.send(large)
    old = replace(legacy_segment("old", "", 4, Partitioner.MURMUR2.value), segment_id=1)
    stage.layout = replace(
        layout_of(stage.plain), epoch=2, segments={1: Segment(old, "old")}, max_message_bytes=1_000
    )
    stage.dispatcher.update(stage.layout)
    assert isinstance(await stage.error_of(large), sdk.MessageTooLargeError)
    request = await stage.request()
    assert request.values == [b"small"]
    request.answers()


async def test_a_partition_without_a_leader_holds_up_no_other(stage: SendingStage) -> None:
    stage.kafka.leaders["t0"] = [-1, 0, 0, 0]
    stage.send(b"one", 0)
    stage.send(b"two", 1)
    assert (await stage.request()).values == [b"two"]
    stage.kafka.leaders["t0"] = [1, 0, 0, 0]
    assert (await stage.request()).values == [b"one"]
