"""Scalable topics on a Kafka of several brokers: each learns of a seal at a time of its own, and
one may be killed in the middle of it.
"""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import ElectionType, KafkaError, KafkaException, TopicPartition
from confluent_kafka import Producer as KafkaProducer
from confluent_kafka.admin import AdminClient, ConfigResource, PartitionMetadata
from confluent_kafka.cimpl import NewTopic

from anabranch.channel.kafka.acls import KafkaAcls
from anabranch.channel.kafka.connection import KafkaConnection
from anabranch.channel.kafka.deadline import Deadline
from anabranch.channel.kafka.offsets import LATEST, PartitionOffset, PartitionOffsets
from anabranch.channel.kafka.topics import Topics, TopicSettings, inspect_topics
from anabranch.channel.segments.admin import SegmentAdmin, SegmentSettings
from anabranch.channel.segments.sealing import Sealer, SegmentTopic
from anabranch.client import Client, Producer
from anabranch.client._kafka_options import ADMIN
from anabranch.core.adoption.survey import TopicSurvey
from anabranch.core.partitioners import Partitioner
from anabranch.wire.kafka import producer_state
from anabranch.wire.kafka.described import BrokerViews
from anabranch.wire.kafka.protocol import bootstrap_addresses
from anabranch.wire.kafka.survey import survey
from support import channel
from support.kafka_brokers import KafkaBrokers
from support.local_topic import local_topic
from support.log_ends import log_end
from support.plain_topics import plain_topics
from support.quiet import QUIET
from support.several_brokers import HalfSealed, leaders, under_load
from support.topic_cluster import TEST_S, TopicCluster, topic_cluster
from support.transactions import COUNT, begun, end
from support.waiting import WAIT_S, await_, until

pytestmark = pytest.mark.long

_VIEW_S = 2.0
_MANY = 500
_CLIENTS = 8
_SOON_S = 10.0


@pytest.fixture
def cluster(brokers: KafkaBrokers, topic_prefix: str, tmp_path: Path) -> Iterator[TopicCluster]:
    """Two nodes with two copies of everything, of which one must be in sync.

    They are new for each test: nodes that have seen load place a segment where least of it is,
    which may be all on one broker.
    """
    settings = (
        "replicationFactor=2",
        "minInsyncReplicas=1",
        "scalableTopicEntryBucketBudget=8",  # four for each of a split's children
    )
    with topic_cluster(brokers, topic_prefix, tmp_path, *settings) as running:
        yield running


def await_missed(kafka: str, number: int) -> None:
    """Returns once Kafka knows that this broker is gone."""
    known = partial(AdminClient({**QUIET, "bootstrap.servers": kafka}).list_topics, timeout=WAIT_S)
    channel.until(lambda: number not in known().brokers, f"broker {number} is missed")


def test_a_share_group_is_set_up_once_every_broker_knows(brokers: KafkaBrokers) -> None:
    connection = KafkaConnection(brokers.bootstrap_servers)
    admin = SegmentAdmin(connection, SegmentSettings())
    user = connection.admin()
    numbers = range(1, len(brokers.brokers) + 1)
    for group in (f"group-{turn}" for turn in range(5)):
        admin.start_share_groups([group], WAIT_S)
        asked = ConfigResource(ConfigResource.Type.GROUP, group)
        of = [ConfigResource(ConfigResource.Type.BROKER, str(each)) for each in numbers]
        told = [user.describe_configs([each, asked])[asked] for each in of]  # each tells its own
        values = [each.result(WAIT_S)["share.auto.offset.reset"].value for each in told]
        assert values == ["earliest"] * len(numbers), group
    admin.close()


def test_questions_to_a_broker_that_is_away_wait_in_peace_and_keep_no_other_answer_back(
    brokers: KafkaBrokers, topic_prefix: str
) -> None:
    """librdkafka's threads otherwise wake each other some 400,000 times a second meanwhile."""
    topic = f"{topic_prefix}t"
    connection = KafkaConnection(brokers.bootstrap_servers)
    sdk = AdminClient({**ADMIN, **QUIET, "bootstrap.servers": brokers.bootstrap_servers})
    node = connection.admin()
    node.create_topics([NewTopic(topic, 2, replica_assignment=[[1], [3]])])[topic].result(WAIT_S)
    places = [(topic, 0), (topic, 1)]
    asker = PartitionOffsets(connection)
    asked = ConfigResource(ConfigResource.Type.BROKER, "3")
    admin = SegmentAdmin(connection, SegmentSettings())

    def told() -> list[bool]:
        answers = asker.ask_each(places, LATEST, 2.0)
        return [isinstance(answers[place], PartitionOffset) for place in places]

    channel.until(lambda: all(told()), "both are led")
    for user in (node, sdk):
        user.describe_configs([asked])[asked].result(WAIT_S)
    victim = brokers.numbered(3)
    victim.kill()
    try:
        for user in (node, sdk):
            before = _switches()
            with pytest.raises(KafkaException):
                user.describe_configs([asked], request_timeout=2.0)[asked].result(WAIT_S)
            assert _switches() - before < 20_000
        before = _switches()
        assert isinstance(asker.ask(places, LATEST, 2.0)[places[1]], KafkaError)
        assert _switches() - before < 20_000
        channel.until(lambda: told() == [True, False], "the other one's is told")
        admin.start_share_groups(["late"], WAIT_S)  # which waits for nobody who is missed
    finally:
        victim.start()
    channel.until(lambda: all(told()), "it is told again")
    asker.close()
    admin.close()


def test_a_dead_broker_that_kafka_names_as_its_controller_keeps_nobody_waiting(
    brokers: KafkaBrokers, topic_prefix: str
) -> None:
    """Each client is told some broker that is not missed yet; librdkafka asks anew after 20 s."""
    connection = KafkaConnection(brokers.bootstrap_servers)
    topics = Topics(topic_prefix)
    victim = brokers.numbered(3)
    victim.kill()
    try:
        with ThreadPoolExecutor(_CLIENTS) as pool:
            made = [
                pool.submit(inspect_topics, connection, topics, TopicSettings(), _SOON_S)
                for _ in range(_CLIENTS)
            ]
            rights = [
                pool.submit(KafkaAcls(connection, topics.wal).find, _SOON_S)
                for _ in range(_CLIENTS)
            ]
            assert {len(each.result().missing) for each in made} == {6}
            assert {each.result() for each in rights} == {frozenset()}
    finally:
        victim.start()


def _switches() -> int:
    """How often this process has given up the processor to wait."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw


def test_copies_are_awaited_until_each_broker_that_lives_follows(
    brokers: KafkaBrokers, topic_prefix: str
) -> None:
    topic = SegmentTopic(f"{topic_prefix}t", 2)
    user = AdminClient({**QUIET, "bootstrap.servers": brokers.bootstrap_servers})
    admin = SegmentAdmin(KafkaConnection(brokers.bootstrap_servers), SegmentSettings())
    victim = brokers.numbered(3)
    victim.kill()
    try:
        where = [[1, 2, 3], [2, 1, 3]]
        new = NewTopic(topic.name, topic.partitions, replica_assignment=where)
        channel.until(partial(_made, user, new), "the topic is made")
        follows = admin.await_copies([topic], 1.0)
        assert not follows or 3 not in user.list_topics(timeout=WAIT_S).brokers
    finally:
        victim.start()
    channel.until(lambda: admin.await_copies([topic], WAIT_S), "all three follow")
    admin.close()


def _made(user: AdminClient, topic: NewTopic) -> bool:
    """Kafka names any broker as its controller, for some seconds also one that is gone."""
    user.list_topics(timeout=WAIT_S)
    try:
        user.create_topics([topic], request_timeout=2.0)[topic.topic].result(WAIT_S)
    except KafkaException as error:
        return bool(error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS)
    return True


def test_only_the_leader_of_a_whole_partition_is_believed_on_what_it_holds(
    brokers: KafkaBrokers, topic_prefix: str
) -> None:
    """A follower answers as well, by what it has copied so far."""
    topic = f"{topic_prefix}t"
    user = AdminClient({**QUIET, "bootstrap.servers": brokers.bootstrap_servers})
    user.create_topics([NewTopic(topic, 1, 2)])[topic].result(WAIT_S)
    writer = KafkaProducer(
        {**QUIET, "bootstrap.servers": brokers.bootstrap_servers, "enable.idempotence": True}
    )
    for number in range(3):
        writer.produce(topic, b"%d" % number)
    assert writer.flush(WAIT_S) == 0
    place = user.list_topics(topic, timeout=WAIT_S).topics[topic].partitions[0]

    def asked(broker: int, end: int) -> list[int]:
        host, _, port = brokers.numbered(broker).bootstrap_servers.partition(":")
        states = producer_state.ask((host, int(port)), (topic, 0), end, {}, WAIT_S)
        return [each.last_sequence for each in states]

    assert asked(place.leader, 3) == [2]
    for broker in {1, 2, 3} - {place.leader}:
        with pytest.raises(OSError, match="moves to another leader"):
            asked(broker, 3)
    with pytest.raises(OSError, match="stands at 3, before its sealed end, 4"):
        asked(place.leader, 4)


async def test_segments_on_several_brokers_split_and_merge_under_load(
    cluster: TopicCluster, client: Client, topic: str
) -> None:
    async def disturb(producer: Producer) -> None:
        first = producer.layout.segments[0].kafka_topic
        assert len(set(leaders(cluster.kafka, first).values())) == 3
        await cluster.split(topic, 0)
        await cluster.split(topic, 1)
        await cluster.merge(topic, 3, 4)
        await cluster.split(topic, 2)
        await until(lambda: len(producer.layout.segments) == 8)

    await under_load(cluster.kafka, client, topic, disturb, repeats=False)


async def test_transactions_over_several_brokers_end_after_a_seal(
    cluster: TopicCluster, client: Client, topic: str
) -> None:
    (segment,) = (await client.watch(topic)).layout.active
    places = leaders(cluster.kafka, segment.kafka_topic)
    assert len(set(places.values())) > 1
    consumer = await client.subscribe(topic, "billing")
    producer = await client.create_producer(topic)
    held = {}
    for buckets in (tuple(places), tuple(places)[::-1]):
        held[buckets] = await asyncio.to_thread(begun, cluster.kafka, segment.kafka_topic, *buckets)
    await cluster.split(topic, 0)
    await producer.send(b"of a child", "key")
    stats = await cluster.call("GET", f"{topic}/stats")
    found = stats["segments"]["0"]["openTransactions"]
    assert found == [{"bucket": number, "startOffset": 0} for number in sorted(places)]
    committed, aborted = held
    await asyncio.to_thread(end, held[aborted], commits=False)
    await asyncio.to_thread(end, held[committed], commits=True)
    taken = []
    for _ in range(COUNT * len(places) + 1):
        message = await consumer.receive(WAIT_S)
        consumer.acknowledge(message)
        taken.append(message.value)
    assert taken[-1] == b"of a child"


def test_a_broker_is_killed_in_the_middle_of_a_seal(
    brokers: KafkaBrokers, topic_prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    victim = brokers.numbered(2)
    seal = HalfSealed(monkeypatch)
    settings = {"replicationFactor": 2, "minInsyncReplicas": 1, "scalableTopicEntryBucketBudget": 8}

    async def test() -> None:
        async with local_topic(brokers, topic_prefix, tmp_path, 1, **settings) as at:

            async def disturb(producer: Producer) -> None:
                splitting = asyncio.create_task(at.node.operations.topics.split(at.topic, 0))
                assert await asyncio.to_thread(seal.reached.wait, WAIT_S)
                await asyncio.to_thread(victim.kill)
                seal.go_on.set()
                await asyncio.to_thread(await_missed, brokers.bootstrap_servers, 2)
                await asyncio.to_thread(victim.start)
                await asyncio.gather(splitting, return_exceptions=True)
                await until(lambda: len(producer.layout.segments) == 3, WAIT_S)

            async with Client(at.node.settings.service_url) as client:
                await under_load(brokers.bootstrap_servers, client, at.topic, disturb, repeats=True)

    try:
        asyncio.run(asyncio.wait_for(test(), TEST_S))
    finally:
        if not victim.is_running:
            victim.start()


def test_a_broker_that_reads_at_once_of_the_seal_and_that_it_leads_stores_nothing_beyond_the_end(
    brokers: KafkaBrokers, topic_prefix: str
) -> None:
    """It leads first and refuses later; here it has the logs of other topics to make in between.

    So by a sealer that asks each broker itself, and by one whose client asks.
    """
    user = AdminClient({**QUIET, "bootstrap.servers": brokers.bootstrap_servers})
    late, leader = brokers.numbered(3), 2
    topics = {asks: f"{topic_prefix}{asks}" for asks in (True, False)}

    def create(name: str, places: list[list[int]]) -> None:
        new = NewTopic(name, len(places), replica_assignment=places)
        user.create_topics([new])[name].result(WAIT_S)

    def known(topic: str) -> PartitionMetadata:
        return user.list_topics(topic, timeout=WAIT_S).topics[topic].partitions[0]

    def leads(broker: int, *names: str) -> bool:
        return all(known(name).leader == broker for name in names)

    for topic in topics.values():
        create(topic, [[3, leader]])  # the first one leads, and again when it is told to
    late.kill()
    channel.until(partial(leads, leader, *topics.values()), "the other one leads")
    late.start()
    channel.until(
        lambda: all(len(known(topic).isrs) == 2 for topic in topics.values()), "both are in sync"
    )
    writer = KafkaProducer(
        {**QUIET, "bootstrap.servers": brokers.bootstrap_servers, "linger.ms": 0}
    )
    connection = KafkaConnection(brokers.bootstrap_servers)
    for asks, topic in topics.items():
        assert not is_refused(writer, topic)
        views = BrokerViews({}, _VIEW_S) if asks else None
        sealer = Sealer(connection, connection.admin(), views)
        with closing(sealer), closing(connection.consumer()) as reader, ThreadPoolExecutor(1) as do:
            create(f"{topic}.before", [[3]] * _MANY)  # for some time it reads of nothing else
            deadline = Deadline(connection, WAIT_S, lambda: None)
            sealing = do.submit(sealer.seal, [SegmentTopic(topic, 1)], deadline)
            channel.until(partial(is_refused, writer, topic), "the leader refuses")
            place = TopicPartition(topic, 0)
            told = user.elect_leaders(ElectionType.PREFERRED, [place]).result(WAIT_S)
            assert told[place] is None
            create(f"{topic}.meanwhile", [[3]] * _MANY)
            channel.until(partial(leads, 3, topic), "the late one leads")
            channel.until(partial(is_refused, writer, topic), "it refuses, too")
            end = log_end(reader, place)
            assert sealing.result(WAIT_S) == {topic: (end,)}


def test_what_each_broker_has_read_of_a_topic_is_what_kafkas_own_tools_tell(
    brokers: KafkaBrokers, topic_prefix: str
) -> None:
    topic, views = f"{topic_prefix}t", BrokerViews({}, _VIEW_S)
    user = AdminClient({**QUIET, "bootstrap.servers": brokers.bootstrap_servers})
    made = NewTopic(topic, 2, replica_assignment=[[1, 2], [2, 1]], config={"retention.ms": "7"})
    user.create_topics([made])[topic].result(WAIT_S)
    there = bootstrap_addresses(brokers.bootstrap_servers)
    asked, names = [*there, (there[0][0], 1)], ("retention.ms", "cleanup.policy")
    # The last one is nobody's address; and no broker tells of the topic that is not there.
    settings = {topic: {"retention.ms": "7", "cleanup.policy": "delete"}}
    channel.until(
        lambda: views.settings(asked, [topic, "missing"], names) == dict.fromkeys(there, settings),
        "all three have read of the topic",
    )
    epochs = {(topic, 0): 0, (topic, 1): 0}
    assert views.epochs(asked, [topic, "missing"]) == dict.fromkeys(there, epochs)
    views.close()


def test_a_broker_that_is_gone_keeps_the_others_partitions_from_no_survey(
    brokers: KafkaBrokers, topic_prefix: str
) -> None:
    name, keys, partitions = f"{topic_prefix}spread", 200, 12
    connection = KafkaConnection(brokers.bootstrap_servers)

    def surveyed() -> TopicSurvey:
        return survey(name, connection.bootstrap_servers, connection.security, WAIT_S, 1)

    with plain_topics(connection, {name: partitions}):
        writer = connection.producer()
        for number in range(keys):
            writer.produce(name, b"value", b"planted-%d" % number)
        assert writer.flush(WAIT_S) == 0
        whole = surveyed()
        assert (len(whole.ends), whole.judgement.keys, whole.untold) == (partitions, keys, {})
        victim = brokers.numbered(3)
        victim.kill()
        try:
            await_(lambda: "partitions" in surveyed().untold)
            rest = surveyed()
        finally:
            victim.start()
        assert rest.judgement.partitioners == (Partitioner.CRC32,)
        assert (rest.partitions, len(rest.ends)) == (partitions, 8)


def is_refused(writer: KafkaProducer, topic: str) -> bool:
    """Whether Kafka refuses an append for its size."""
    answers: list[KafkaError | None] = []
    writer.produce(topic, b"late", on_delivery=lambda error, _: answers.append(error))
    assert writer.flush(WAIT_S) == 0
    (answer,) = answers
    return answer is not None and answer.code() == KafkaError.MSG_SIZE_TOO_LARGE
