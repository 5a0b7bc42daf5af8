"""Transactions of plain Kafka producers."""

from __future__ import annotations

from multiprocessing.synchronize import Event

from confluent_kafka import Producer

from support.quiet import QUIET
from support.waiting import WAIT_S

COUNT = 3  # messages in each bucket


def begun(servers: str, topic: str, *buckets: int, **settings: object) -> Producer:
    """A producer with one open transaction, of three stored messages in each bucket."""
    name = f"{topic}.{buckets}"
    producer = Producer(
        {**QUIET, "bootstrap.servers": servers, "transactional.id": name, **settings}
    )
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    for bucket in buckets:
        for number in range(COUNT):
            producer.produce(topic, b"%d" % number, b"key", partition=bucket)
    assert producer.flush(WAIT_S) == 0
    return producer


def begin_and_stay(servers: str, topic: str, timeout_ms: int, began: Event) -> None:
    """What a process does that is to be killed in the middle of a transaction."""
    producer = begun(servers, topic, 0, **{"transaction.timeout.ms": timeout_ms})
    began.set()
    while True:
        producer.poll(WAIT_S)


def end(producer: Producer, *, commits: bool) -> None:
    """Ends what is open."""
    (producer.commit_transaction if commits else producer.abort_transaction)(WAIT_S)
