"""The survey of Kafka topics that others have written: what it tells, and that it only looks."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec
import pytest
from aiokafka import AIOKafkaProducer
from click.testing import CliRunner
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions

from anabranch.channel.errors import KafkaUnreachableError
from anabranch.channel.kafka.connection import KafkaConnection
from anabranch.cli.main import cli
from anabranch.core.adoption.refusals import AdoptionObstacle, refusals
from anabranch.core.adoption.survey import TopicSurvey
from anabranch.core.adoption.verdict import PartitionerVerdict
from anabranch.core.partitioners import Partitioner
from anabranch.wire.kafka.protocol import KafkaProtocolError
from anabranch.wire.kafka.survey import survey
from support.java_clients import java_clients, java_producer, java_send
from support.nobody import nobody
from support.plain_topics import await_leaders, plain_topics
from support.secured_kafka import LIMITED, MASTER, SecuredKafka
from support.transactions import begun, end
from support.waiting import WAIT_S

KEYS = [b"planted-%d" % number for number in range(200)]
PARTITIONS = 12


@pytest.fixture
def topic(connection: KafkaConnection, topic_prefix: str) -> Iterator[str]:
    name = f"{topic_prefix}orders"
    with plain_topics(connection, {name: PARTITIONS}):
        yield name


def surveyed(connection: KafkaConnection, topic: str) -> TopicSurvey:
    found = survey(topic, connection.bootstrap_servers, connection.security, WAIT_S, 1)
    assert "planted" not in f"{found!r}{msgspec.json.encode(found)!r}"
    assert msgspec.json.decode(msgspec.json.encode(found), type=TopicSurvey) == found
    return found


def state_of(connection: KafkaConnection, topic: str, group: str) -> dict[str, Any]:
    """All that could change: settings, partitions, ends, offsets, groups."""
    admin = connection.admin()
    asked = ConfigResource(ConfigResource.Type.TOPIC, topic)
    (settings,) = admin.describe_configs([asked]).values()
    groups = admin.list_consumer_groups().result(WAIT_S).valid
    consumer = connection.consumer(group_id=group)
    partitions = [TopicPartition(topic, n) for n in range(PARTITIONS)]
    try:
        return {
            "settings": {k: (v.value, v.source) for k, v in settings.result(WAIT_S).items()},
            "ends": [consumer.get_watermark_offsets(each, WAIT_S) for each in partitions],
            "offsets": [each.offset for each in consumer.committed(partitions, WAIT_S)],
            "groups": {each.group_id: str(each.state) for each in groups},
            "topics": set(admin.list_topics(timeout=WAIT_S).topics),
        }
    finally:
        consumer.close()


def commit(connection: KafkaConnection, topic: str, group: str, offsets: dict[int, int]) -> None:
    consumer = connection.consumer(group_id=group)
    given = [TopicPartition(topic, number, at) for number, at in offsets.items()]
    try:
        consumer.commit(offsets=given, asynchronous=False)
    finally:
        consumer.close()


def by_librdkafka(
    connection: KafkaConnection, topic: str, keys: Iterable[bytes | None], **settings: Any
) -> None:
    producer = connection.producer(**settings)
    for key in keys:
        producer.produce(topic, b"value", key)
    assert producer.flush(WAIT_S) == 0


def by_java(connection: KafkaConnection, topic: str, keys: Iterable[bytes | None]) -> None:
    with java_clients() as java:
        java_send(java, java_producer(java, connection.bootstrap_servers), topic, keys)


def by_aiokafka(connection: KafkaConnection, topic: str, keys: Iterable[bytes | None]) -> None:
    async def main() -> None:
        async with AIOKafkaProducer(bootstrap_servers=connection.bootstrap_servers) as producer:
            for key in keys:
                await (await producer.send(topic, b"value", key))

    asyncio.run(main())


def by_librdkafka_as_java(
    connection: KafkaConnection, topic: str, keys: Iterable[bytes | None]
) -> None:
    by_librdkafka(connection, topic, keys, partitioner="murmur2_random")


@pytest.mark.parametrize(
    ("write", "partitioner"),
    [
        (by_java, Partitioner.MURMUR2),
        (by_aiokafka, Partitioner.MURMUR2),
        (by_librdkafka_as_java, Partitioner.MURMUR2),
        (by_librdkafka, Partitioner.CRC32),
    ],
)
def test_a_client_is_known_by_its_keys(
    connection: KafkaConnection, topic: str, write: Callable[..., None], partitioner: Partitioner
) -> None:
    write(connection, topic, [*KEYS, None, b""])
    found = surveyed(connection, topic)
    assert found.judgement.verdict is PartitionerVerdict.CERTAIN
    assert found.judgement.partitioners == (partitioner,)
    assert (found.judgement.keys, found.judgement.unkeyed) == (len(KEYS), 1)
    assert found.records_read == sum(found.ends.values()) == len(KEYS) + 2
    assert found.untold == {}


def test_two_clients_are_told_apart_and_keys_of_both_are_counted(
    connection: KafkaConnection, topic: str
) -> None:
    by_librdkafka_as_java(connection, topic, KEYS[:150])
    by_librdkafka(connection, topic, KEYS[120:])
    found = surveyed(connection, topic).judgement
    assert found.verdict is PartitionerVerdict.MIXED
    assert found.partitioners == (Partitioner.MURMUR2, Partitioner.CRC32)
    assert 20 <= found.split_keys <= 30  # of 30, as some have the same place by both


def test_without_enough_keys_nothing_is_claimed(connection: KafkaConnection, topic: str) -> None:
    assert surveyed(connection, topic).judgement.verdict is PartitionerVerdict.TOO_FEW
    by_librdkafka(connection, topic, [None] * 50)
    found = surveyed(connection, topic)
    assert found.judgement.verdict is PartitionerVerdict.UNKEYED
    assert found.judgement.unkeyed == 50
    by_librdkafka(connection, topic, KEYS[:10] * 50)
    assert surveyed(connection, topic).judgement.verdict is PartitionerVerdict.TOO_FEW


def test_keys_in_partitions_of_the_writers_choice_are_nobodys(
    connection: KafkaConnection, topic: str
) -> None:
    producer = connection.producer()
    for number, key in enumerate(KEYS):
        producer.produce(topic, b"value", key, partition=number % PARTITIONS)
    assert producer.flush(WAIT_S) == 0
    assert surveyed(connection, topic).judgement.verdict is PartitionerVerdict.UNKNOWN


def test_partitions_that_were_added_are_told(
    connection: KafkaConnection, topic_prefix: str
) -> None:
    name, many = f"{topic_prefix}grown", [b"planted-%d" % number for number in range(5_000)]
    with plain_topics(connection, {name: 6}):
        by_librdkafka(connection, name, many)
        admin = connection.admin()
        admin.create_partitions([NewPartitions(name, PARTITIONS)])[name].result(WAIT_S)
        await_leaders(connection, {name: PARTITIONS})
        by_librdkafka(connection, name, many)
        found = surveyed(connection, name).judgement
    assert (found.verdict, found.partitioners) == (PartitionerVerdict.SINCE, (Partitioner.CRC32,))
    assert found.earlier_partitions == 6


def test_records_with_keys_are_found_among_many_without(
    connection: KafkaConnection, topic: str
) -> None:
    by_librdkafka(connection, topic, KEYS[:100])
    by_librdkafka(connection, topic, [None] * 12_000)
    by_librdkafka(connection, topic, KEYS[100:])
    found = surveyed(connection, topic)
    assert found.judgement.partitioners == (Partitioner.CRC32,)
    assert found.judgement.keys == len(KEYS)


def test_codecs_and_a_registrys_format_are_seen(connection: KafkaConnection, topic: str) -> None:
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        producer = connection.producer(compression_type=codec)
        for number in range(100):
            producer.produce(topic, b"\0\0\0\0\x07" + b"value" * 9, b"planted-%d" % number)
        assert producer.flush(WAIT_S) == 0
    found = surveyed(connection, topic)
    assert set(found.codecs) == {"none", "gzip", "snappy", "lz4", "zstd"}
    assert found.registry_values == found.records_read == 500
    assert found.registry_keys == 0


def test_open_transactions_and_their_producers_are_seen(
    connection: KafkaConnection, topic: str
) -> None:
    by_librdkafka(connection, topic, KEYS)
    writer = begun(connection.bootstrap_servers, topic, 3)
    found = surveyed(connection, topic)
    assert list(found.open_transactions) == [3]
    assert found.open_transactions[3] < found.ends[3]
    assert found.producers is not None
    assert (found.producers.count, found.producers.transactional) == (2, 1)
    end(writer, commits=True)
    after = surveyed(connection, topic)
    assert after.open_transactions == {}
    assert after.producers is not None
    assert after.producers.transactional == 1


def test_groups_are_told_with_their_state_and_lag_and_nothing_changes(
    connection: KafkaConnection, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    by_librdkafka(connection, topic, KEYS * 3)
    middle, busy = f"{topic}.middle", f"{topic}.busy"
    commit(connection, topic, middle, {0: 5, 3: 7})
    member = connection.consumer(group_id=busy, auto_offset_reset="earliest")
    member.subscribe([topic])
    try:
        message = member.poll(WAIT_S)
        assert message is not None
        member.commit(message=message, asynchronous=False)
        before = state_of(connection, topic, middle)
        found = surveyed(connection, topic)
        assert state_of(connection, topic, middle) == before
    finally:
        member.close()
    groups = {each.name: each for each in found.groups}
    assert groups.keys() == {middle, busy}
    assert (groups[middle].state, groups[middle].has_members) == ("Empty", False)
    assert groups[middle].offsets == {0: 5, 3: 7}
    assert groups[middle].lag == found.ends[0] - 5 + found.ends[3] - 7
    assert (groups[busy].state, groups[busy].has_members) == ("Stable", True)
    assert (groups[busy].kind, found.growth is not None) == ("classic", True)
    assert "planted" not in caplog.text


def test_inherited_settings_are_told_from_those_of_the_topic(
    connection: KafkaConnection, topic_prefix: str
) -> None:
    name = f"{topic_prefix}set"
    with plain_topics(connection, {name: 1}, {"cleanup.policy": "compact,delete"}):
        found = surveyed(connection, name)
    told = {name: each.is_own for name, each in found.settings.items() if each.is_own}
    assert told == {"cleanup.policy": True}
    assert found.settings["cleanup.policy"].value == "compact,delete"
    assert found.settings["max.message.bytes"].value.isdecimal()
    assert found.missing_rights == ()


def test_growth_is_seen(connection: KafkaConnection, topic: str) -> None:
    before = surveyed(connection, topic).growth
    assert before is not None
    assert (before.records, before.newest_ms) == (0, None)
    by_librdkafka(connection, topic, KEYS)
    after = surveyed(connection, topic).growth
    assert after is not None
    assert after.newest_ms is not None


def test_a_topic_that_is_not_there_is_said_and_not_made(
    connection: KafkaConnection, topic_prefix: str
) -> None:
    name = f"{topic_prefix}missing"
    with pytest.raises(KafkaProtocolError, match="has no such topic"):
        surveyed(connection, name)
    admin: AdminClient = connection.admin()
    assert name not in admin.list_topics(timeout=WAIT_S).topics


def test_missing_rights_are_named_and_the_rest_is_told_behind_sasl(
    secured_kafka: SecuredKafka, topic_prefix: str
) -> None:
    name = f"{topic_prefix}guarded"
    opened = KafkaConnection(secured_kafka.open_at)
    servers = secured_kafka.bootstrap_servers
    secured_kafka.allow(("topics", name, "DESCRIBE"))
    with plain_topics(opened, {name: PARTITIONS}):
        by_librdkafka(opened, name, KEYS)
        few = surveyed(KafkaConnection(servers, secured_kafka.security(LIMITED)), name)
        every = surveyed(KafkaConnection(servers, secured_kafka.security(MASTER)), name)
    assert few.missing_rights == (
        "Read",
        "Write",
        "Delete",
        "DescribeConfigs",
        "AlterConfigs",
    )
    others = {"share groups"}  # of other tests on this Kafka
    assert few.untold.keys() - others == {"settings", "records", "producers"}
    assert sum(few.ends.values()) == len(KEYS)
    reasons = [each.reason for each in refusals(few, topic_prefix)]
    assert AdoptionObstacle.SETTINGS_UNKNOWN in reasons
    assert (every.untold.keys() - others, every.missing_rights) == (set(), ())
    assert every.judgement.partitioners == (Partitioner.CRC32,)


def test_the_command_tells_it_and_says_by_its_status_if_the_topic_is_refused(
    connection: KafkaConnection, topic: str, topic_prefix: str
) -> None:
    by_librdkafka(connection, topic, KEYS)
    command = ["topics", "survey", topic, "--bootstrap-servers", connection.bootstrap_servers]
    done = CliRunner().invoke(cli, command, standalone_mode=False)
    assert (done.return_value, "planted" in done.output) == (0, False)
    assert f"partitioner: crc32 explains all of {len(KEYS)} keys\n" in done.output
    refused = CliRunner().invoke(
        cli, [*command, "--topic-prefix", topic_prefix, "--json"], standalone_mode=False
    )
    assert (refused.return_value, "planted" in refused.output) == (1, False)
    told = msgspec.json.decode(refused.output)
    assert [each["reason"] for each in told["refusals"]] == ["ours"]
    assert msgspec.convert(told["survey"], TopicSurvey, strict=False).topic == topic


def test_the_command_names_a_kafka_that_does_not_answer() -> None:
    with nobody() as servers:
        command = ["topics", "survey", "orders", "--bootstrap-servers", servers]
        done = CliRunner().invoke(cli, command)
    assert isinstance(done.exception, KafkaUnreachableError)
    assert servers in str(done.exception)
