"""A recording of what brokers write to a real Kafka, until it can be replayed."""

from __future__ import annotations

import time
from pathlib import Path

from click.testing import CliRunner

from anabranch.broker.cli.cluster.balance import balance
from anabranch.broker.cli.cluster.recording import follow
from anabranch.channel.kafka.connection import KafkaConnection
from anabranch.channel.kafka.topics import Topics, TopicSettings, ensure_topics
from anabranch.channel.load.balance import KafkaBrokerLoads, KafkaTopBundles
from anabranch.channel.load.balance_records import broker_load_record, top_bundles_record
from anabranch.core.balance.broker_load import BrokerLoadData
from anabranch.core.balance.bundle_load import BundleLoad, TopBundlesLoadData
from anabranch.core.balance.recording import BrokerLine, BundleLine, LoadRecorder
from anabranch.core.balance.usage import ResourceUsage
from anabranch.core.errors import InvalidInputError
from anabranch.devkit.kafka.embedded import EmbeddedKafka
from anabranch.spark_replay.balance.run import read_recording
from support.channel import until
from support.waiting import WAIT_S

ONE, TWO = "a/b/0x00000000_0x80000000", "a/b/0x80000000_0xffffffff"


def test_what_brokers_report_before_and_meanwhile_is_recorded(
    kafka: EmbeddedKafka, topic_prefix: str, tmp_path: Path
) -> None:
    connection, topics = KafkaConnection(kafka.bootstrap_servers), Topics(topic_prefix)
    ensure_topics(connection, topics, TopicSettings(), WAIT_S)
    loads, top = KafkaBrokerLoads(connection, topics), KafkaTopBundles(connection, topics)

    def tell(broker: str, cpu: float, **throughputs: float) -> None:
        load = BrokerLoadData(cpu=ResourceUsage(cpu, 100.0))
        bundles = [
            (name, BundleLoad(msg_throughput_in=throughputs[key]))
            for key, name in (("one", ONE), ("two", TWO))
            if key in throughputs
        ]
        loads.write({broker: broker_load_record(load, "some.Class")})
        top.write({broker: top_bundles_record(TopBundlesLoadData(tuple(bundles), 1))})

        def is_written() -> bool:
            loads.poll(0.05)
            top.poll(0.05)
            return not loads.waiting and not top.waiting

        until(is_written, "it is written")

    recorder = LoadRecorder()
    deadline = time.monotonic() + WAIT_S
    told = 0

    def is_over() -> bool:
        nonlocal told
        assert time.monotonic() < deadline, f"only {recorder.lines} lines are recorded"
        if told == 0 and recorder.lines >= 4:
            told = 1
            tell("b1:80", 20.0, one=5.0)  # no more is known of the other
        return recorder.lines >= 6 and told == 1

    try:
        tell("b1:80", 30.0, one=5.0, two=7.0)
        tell("b2:80", 10.0)
        path = tmp_path / "load.jsonl"
        with path.open("xb") as file:
            follow(connection, topics, recorder, file, is_over)
    finally:
        loads.close()
        top.close()
    recording = read_recording(path)
    brokers = [
        (each.broker, each.resources.cpu.usage)
        for each in recording.lines
        if isinstance(each, BrokerLine) and each.resources is not None
    ]
    bundles = [
        (each.bundle, each.broker, each.load.msg_throughput_in)
        for each in recording.lines
        if isinstance(each, BundleLine)
    ]
    assert sorted(brokers[:2]) == [("b1:80", 30.0), ("b2:80", 10.0)]
    assert brokers[2:] == [("b1:80", 20.0)]
    assert bundles == [(ONE, "b1:80", 5.0), (TWO, "b1:80", 7.0), (TWO, "b1:80", 0.0)]


def test_the_command_ends_in_time_and_writes_over_nothing(
    kafka: EmbeddedKafka, topic_prefix: str, tmp_path: Path
) -> None:
    connection = KafkaConnection(kafka.bootstrap_servers)
    ensure_topics(connection, Topics(topic_prefix), TopicSettings(), WAIT_S)
    path = tmp_path / "load.jsonl"
    command = [
        *("record", "--bootstrap-servers", kafka.bootstrap_servers, "--to", str(path)),
        *("--seconds", "0.1", "--set", f"topicPrefix={topic_prefix}"),
    ]
    first = CliRunner().invoke(balance, command)
    assert first.output == f"0 lines about 0 brokers and 0 bundles are in {path}\n"
    again = CliRunner().invoke(balance, command)
    assert isinstance(again.exception, InvalidInputError)
    assert f"{path} is there already" in str(again.exception)
