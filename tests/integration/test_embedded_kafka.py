"""The embedded Kafka against a real one: it is one."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from anabranch.devkit import ports
from anabranch.devkit.kafka.embedded import EmbeddedKafka, KafkaStartError
from support.processes import descendants
from support.quiet import QUIET
from support.waiting import WAIT_S


def _create_topic(kafka: EmbeddedKafka, topic: str) -> None:
    admin = AdminClient({**QUIET, "bootstrap.servers": kafka.bootstrap_servers})
    for future in admin.create_topics([NewTopic(topic, 1, 1)]).values():
        future.result(WAIT_S)


def _produce(kafka: EmbeddedKafka, topic: str, values: Sequence[bytes]) -> None:
    producer = Producer({**QUIET, "bootstrap.servers": kafka.bootstrap_servers, "acks": "all"})
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(WAIT_S) == 0


def _consume(kafka: EmbeddedKafka, topic: str, count: int) -> list[bytes | None]:
    consumer = Consumer(
        {**QUIET, "bootstrap.servers": kafka.bootstrap_servers, "group.id": "unused"}
    )
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        messages = consumer.consume(count, WAIT_S)
    finally:
        consumer.close()
    assert [message.error() for message in messages] == [None] * count
    return [message.value() for message in messages]


@pytest.mark.long
def test_a_machine_that_stands_still_for_some_seconds_leaves_kafka_its_only_broker(
    tmp_path: Path,
) -> None:
    with EmbeddedKafka(tmp_path) as kafka:
        assert kafka._supervisor is not None
        (process,) = descendants(kafka._supervisor.pid)
        os.kill(process, signal.SIGSTOP)
        try:
            time.sleep(4.0)
        finally:
            os.kill(process, signal.SIGCONT)
        for number in range(20):
            _create_topic(kafka, f"made-{number}")
        assert "Fencing broker" not in kafka.log_file.read_text()


_PARENT = """
import sys, threading
from pathlib import Path
from anabranch.devkit.kafka.embedded import EmbeddedKafka

kafka = EmbeddedKafka(Path(sys.argv[1]))
starter = threading.Thread(target=kafka.start)
starter.start()
starter.join()
print(kafka.bootstrap_servers, flush=True)
sys.stdin.readline()
"""
_ANOTHER_KAFKA = "Another Kafka runs on this data directory: stop it, or name another directory"


def test_it_ends_with_a_parent_that_is_killed_but_not_with_the_thread_that_started_it(
    tmp_path: Path,
) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _PARENT, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as parent:
        assert parent.stdout is not None
        host, port = parent.stdout.readline().split(":")
        # The thread has ended by now; a parent-death signal would have followed it.
        socket.create_connection((host, int(port)), WAIT_S).close()

        os.kill(parent.pid, signal.SIGKILL)

    deadline = time.monotonic() + WAIT_S
    while not ports.is_free(host, int(port)):
        assert time.monotonic() < deadline, "Kafka outlives its parent"
        time.sleep(0.05)


def test_a_port_in_use_is_named_with_the_remedy(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", ports.free_port("127.0.0.1"))) as server:
        port = server.getsockname()[1]

        with pytest.raises(KafkaStartError, match=rf"Port {port} .* in use.*choose another port"):
            EmbeddedKafka(tmp_path, port).start()


def test_a_data_directory_has_one_kafka(kafka: EmbeddedKafka, topic_prefix: str) -> None:
    topic = f"{topic_prefix}unharmed"
    folder = kafka.log_file.parent
    own = [folder / name for name in ("server.properties", "console.log")]
    before = [(path.read_bytes(), path.stat().st_mtime_ns) for path in own]
    second = EmbeddedKafka(folder)

    with pytest.raises(KafkaStartError, match=f"^{_ANOTHER_KAFKA}"):
        second.start()

    assert kafka.is_running
    assert not second.is_running
    assert [(path.read_bytes(), path.stat().st_mtime_ns) for path in own] == before
    # The controller and the broker still write: to the files that the second one was kept from.
    _create_topic(kafka, topic)
    _produce(kafka, topic, [b"after the refusal"])
    assert _consume(kafka, topic, 1) == [b"after the refusal"]


def test_a_start_that_fails_shows_the_end_of_the_log(tmp_path: Path) -> None:
    kafka = EmbeddedKafka(tmp_path)
    (tmp_path / "log").mkdir()
    (tmp_path / "log" / "meta.properties").write_text("version=1\nnode.id=7\n")

    with pytest.raises(KafkaStartError, match=r"name an empty one(.|\n)*\n  \| .*cluster\.id"):
        kafka.start()

    assert not kafka.is_running
