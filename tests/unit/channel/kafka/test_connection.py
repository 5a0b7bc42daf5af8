"""Connections and what their clients tell: rules of the Kafka side that need no Kafka."""

from __future__ import annotations

import asyncio
import json
import logging

import pytest
from confluent_kafka import KafkaError

from anabranch.channel import errors
from anabranch.channel.errors import BrokersForgottenError
from anabranch.channel.kafka import connection
from anabranch.channel.kafka.connection import KafkaConnection, ProducerHealth, Refusals
from anabranch.channel.kafka.topics import Topics, TopicSettings, check_release, check_topic
from anabranch.channel.log.kafka_log import KafkaLogWriter, append_error
from anabranch.client._kafka_options import LIBRDKAFKA_LOG
from anabranch.core.errors import FaultError, InvalidInputError
from support.waiting import until

MUST = {"cleanup.policy": "compact,delete", "retention.ms": "-1", "max.message.bytes": "9000"}
GOOD = {
    "cleanup.policy": "delete,compact",
    "retention.ms": "-1",
    "min.insync.replicas": "2",
    "max.message.bytes": "10000",
}


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (KafkaError.MSG_SIZE_TOO_LARGE, errors.AppendFailedError),
        (KafkaError._QUEUE_FULL, errors.AppendFailedError),
        (KafkaError._MSG_TIMED_OUT, errors.AppendUnknownError),
        (KafkaError._PURGE_INFLIGHT, errors.AppendUnknownError),
        (KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND, errors.AppendUnknownError),
    ],
)
def test_an_append_counts_as_failed_only_where_no_attempt_can_have_succeeded(
    code: int, kind: type[Exception]
) -> None:
    assert type(append_error(KafkaError(code))) is kind


@pytest.mark.parametrize(
    "error",
    [
        KafkaError(KafkaError._FATAL),
        KafkaError(KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, "out of order", True),
    ],
)
def test_a_producer_that_is_lost_says_so_and_an_error_that_passes_does_not(
    error: KafkaError,
) -> None:
    health = ProducerHealth("a.wal")
    health.note(KafkaError(KafkaError._ALL_BROKERS_DOWN))
    health.check()
    health.note(error)
    for _ in range(2):
        with pytest.raises(errors.ProducerLostError, match=r"a\.wal.*start this node again"):
            health.check()


def test_a_writer_whose_producer_is_lost_ends_whoever_serves_it() -> None:
    writer = KafkaLogWriter(KafkaConnection("127.0.0.1:1"), "a.wal")
    assert writer.serve(0) >= 0
    writer._health.note(KafkaError(KafkaError._FATAL))
    with pytest.raises(FaultError, match="start this node again"):
        writer.serve(0)
    writer.close(0)


def statistics(client: str, *sources: str) -> str:
    """Of a client that knows brokers from these sources, as librdkafka 2.16 tells them."""
    brokers = {
        f"b{number}": {"name": f"b{number}", "nodeid": -1, "source": source, "state": "INIT"}
        for number, source in enumerate(sources)
    }
    return json.dumps({"name": client, "client_id": "n", "brokers": brokers, "topics": {}})


@pytest.mark.parametrize("known", ["learned", "configured"])
def test_a_client_that_finds_brokers_again_is_not_given_up(known: str) -> None:
    refusals = Refusals()
    for sources in (("logical",), ("logical", known)) * 3:
        refusals.note_brokers(statistics("n#consumer-1", *sources))
        refusals.check()


@pytest.mark.parametrize("left", [(), ("logical",), ("internal",)])
def test_a_client_that_knows_no_broker_any_more_is_told_of(left: tuple[str, ...]) -> None:
    refusals = Refusals()
    for client in ("n#consumer-1", "n#producer-2"):
        refusals.note_brokers(statistics(client, *left))
        refusals.check()
    refusals.note_brokers(statistics("n#producer-2", "learned"))
    refusals.note_brokers(statistics("n#consumer-1", *left))
    with pytest.raises(FaultError, match=r"n#consumer-1.*5301.*start this node again"):
        refusals.check()


def test_a_client_that_does_not_reach_kafka_still_knows_where_it_should_be() -> None:
    told: list[str] = []

    class Heard(Refusals):
        def note_brokers(self, statistics: str) -> None:
            told.append(statistics)
            super().note_brokers(statistics)

    connection = KafkaConnection("127.0.0.1:1", refusals=Heard())
    consumer = connection.consumer(is_polled=True, statistics_interval_ms=50)
    while len(told) < 3:
        consumer.poll(1)
    connection.refusals.check()
    consumer.close()


def test_only_security_properties_can_be_set() -> None:
    KafkaConnection("host:9092", {"sasl.username": "me", "ssl.ca.location": "/ca.pem"})
    with pytest.raises(InvalidInputError, match=r"'linger.ms'.*security"):
        KafkaConnection("host:9092", {"linger.ms": "100"})
    with pytest.raises(InvalidInputError, match="host:port"):
        KafkaConnection(" ")


def test_a_wrong_value_of_a_security_property_names_it() -> None:
    connection = KafkaConnection("host:9092", {"security.protocol": "carrier-pigeon"})
    with pytest.raises(InvalidInputError, match=r'"carrier-pigeon".*"security.protocol"'):
        connection.producer()


def test_passwords_do_not_show() -> None:
    assert "secret" not in repr(KafkaConnection("host:9092", {"sasl.password": "secret"}))


@pytest.mark.parametrize("part", ["channel", "client"])
def test_librdkafka_says_each_thing_once_in_a_while(
    part: str, caplog: pytest.LogCaptureFixture
) -> None:
    log = logging.getLogger(LIBRDKAFKA_LOG.name.replace("client", part))
    failed = "FAIL [rdkafka#%s-%d] Connect to 10.0.0.%d:9092 failed (after %dms%s)"
    for number in range(100):
        more = f", {number} identical error(s) suppressed" if number else ""
        for kind in ("producer", "consumer"):
            log.error(failed, kind, number, number, number, more)
    log.error("TWIST [x] once")
    told = [record.getMessage() for record in caplog.records]
    ours = [each for each in told if "10.0.0." in each or "TWIST" in each]  # not those of a client
    assert [each.split("-")[0] for each in ours] == [
        "FAIL [rdkafka#producer",
        "FAIL [rdkafka#consumer",
        "TWIST [x] once",
    ]


def test_every_name_of_a_cluster_starts_with_its_prefix() -> None:
    topics = Topics("cell-1.")
    assert (topics.wal, topics.compactor_id) == ("cell-1.wal", "cell-1.compactor")
    for prefix in ("", "a b", "ü.", "x" * 201):
        with pytest.raises(InvalidInputError, match="topicPrefix"):
            Topics(prefix)


def test_a_sound_topic_may_be_better_than_asked_for() -> None:
    check_topic("t", [3], GOOD, MUST, TopicSettings(2, 1))


@pytest.mark.parametrize(
    ("replicas", "config", "message"),
    [
        ([1, 1], GOOD, "topic t has 2 partitions, not 1.*another topicPrefix"),
        ([1], GOOD, "topic t has replication factor 1, expected at least 2.*reassign"),
        (
            [2],
            {**GOOD, "cleanup.policy": "compact"},
            r"cleanup.policy=compact, expected .*--entity-name t .*=\[compact,delete\]",
        ),
        ([2], {**GOOD, "max.message.bytes": "8999"}, "max.message.bytes=8999, expected 9000"),
        ([2], {**GOOD, "min.insync.replicas": "1"}, "min.insync.replicas=1, expected 2"),
    ],
)
def test_a_wrong_topic_is_named_with_setting_and_remedy(
    replicas: list[int], config: dict[str, str], message: str
) -> None:
    with pytest.raises(errors.WrongTopicError, match=message):
        check_topic("t", replicas, config, MUST, TopicSettings(2, 2))


def test_an_old_kafka_is_told_by_its_settings() -> None:
    spoken = "inter.broker.protocol.version"
    with pytest.raises(errors.KafkaTooOldError, match=r"host:9092.*release 3\.5;.*3\.6 or newer"):
        check_release({spoken: "3.5-IV2", "process.roles": "broker"}, "host:9092")
    with pytest.raises(errors.KafkaTooOldError, match=r"release 3\.9 with ZooKeeper; .*upgrade"):
        check_release({spoken: "3.9-IV0", "process.roles": ""}, "host:9092")
    check_release({spoken: "3.10-IV0", "process.roles": "broker"}, "host:9092")
    check_release({"log.dirs": "/data"}, "host:9092")


# --- which clients of Kafka are told statistics, and what those keep that nobody polls ------------


async def test_a_client_that_nobody_polls_keeps_no_statistics(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection, "_STATISTICS_MS", 10)
    nowhere = KafkaConnection("127.0.0.1:1")
    idle, polled = nowhere.producer(), nowhere.producer(is_polled=True)

    # Events that wait to be polled are counted: without a broker, errors and statistics.
    await until(lambda: len(polled) > 50)
    assert 3 * len(idle) < len(polled)


def test_a_client_that_is_polled_is_known_to_be_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "_STATISTICS_MS", 10)
    monkeypatch.setattr(connection, "_REAL", frozenset())  # as if there were no broker
    nowhere = KafkaConnection("127.0.0.1:1")
    client = nowhere.consumer(is_polled=True)

    def is_forgotten() -> bool:
        client.poll(0)
        try:
            nowhere.refusals.check()
        except BrokersForgottenError:
            return True
        return False

    asyncio.run(until(is_forgotten))
    client.close()
