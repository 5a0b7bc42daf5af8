"""Reports of load: how many a large cluster writes, and what it takes to read them.

python -m bench.balance.reports {consume|read} {loads|top} BOOTSTRAP_SERVERS TOPIC_PREFIX RECORDS
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from random import Random

import msgspec
from confluent_kafka import OFFSET_BEGINNING, TopicPartition

from anabranch.channel.balance_records import (
    BrokerLoadRecord,
    TopBundlesRecord,
    broker_load_record,
    top_bundles_record,
)
from anabranch.channel.codec import BROKER_LOADS, TOP_BUNDLES
from anabranch.channel.kafka.connection import KafkaConnection, close_consumer
from anabranch.channel.kafka.topics import Topics
from anabranch.channel.load.balance import KafkaBrokerLoads, KafkaTopBundles
from anabranch.core.balance.broker_load import (
    NOTHING_USED,
    BrokerLoadData,
    Resources,
    ResourceUsage,
)
from anabranch.core.balance.bundle_load import BundleLoad, TopBundlesLoadData
from anabranch.core.balance.policies import NO_POLICIES
from anabranch.core.balance.reports import (
    BrokerReports,
    fault_of,
)
from anabranch.core.balance.settings import BalanceSettings
from bench.clients.load import due_times
from bench.figure import Measured
from bench.place import Place

_NODES = 1_000
_SIMULATED = 100  # of them: they are alike, and each reports by itself
_BUNDLES = 20
_MINUTES = 45
_FLUTTER = 0.03  # of each bundle's traffic, from one measurement to the next
_START_MS = 1_700_000_000_000
_EVERY_MS = BalanceSettings().report_update_min_interval_millis
_SECONDS = 20
_GOAL_PERCENT = 2.0
_POLL_S = 0.2
_LOADS, _TOP = "loads", "top"
_CHILD_S_MAX = 120.0


class Simulated:
    """A node whose load flutters around what it was at first."""

    def __init__(self, number: int) -> None:
        self._rng = Random(number)
        self._rates = [self._rng.uniform(10, 1_000) for _ in range(_BUNDLES)]
        self._cpu = self._rng.uniform(10, 70)
        self._name = f"tenant/n{number}"
        self._reports = BrokerReports(BalanceSettings())

    def measured(self, now_ms: int) -> tuple[BrokerLoadRecord | None, TopBundlesRecord | None]:
        """The load and the top bundles, each if it is told now."""
        bundles = {}
        for at, rate in enumerate(self._rates):
            now = rate * self._rng.gauss(1, _FLUTTER)
            bundles[f"{self._name}/{at}"] = BundleLoad(
                msg_rate_in=now,
                msg_rate_out=now,
                msg_throughput_in=100 * now,
                msg_throughput_out=100 * now,
                topics=5,
            )
        cpu = ResourceUsage(self._cpu * self._rng.gauss(1, _FLUTTER), 100.0)
        nothing = NOTHING_USED
        resources = Resources(cpu, nothing, nothing, nothing, nothing)
        load = self._reports.measured(resources, bundles, now_ms)
        top = self._reports.top(bundles, NO_POLICIES, now_ms)
        return (
            None if load is None else broker_load_record(load),
            None if top is None else top_bundles_record(top),
        )


class Rate(msgspec.Struct, frozen=True):
    """What all nodes write into one topic."""

    records_per_s: float
    bytes_per_s: float


@cache
def _written() -> dict[str, Rate]:
    """By topic, with all intervals and thresholds at their defaults."""
    sizes: dict[str, list[int]] = {_LOADS: [], _TOP: []}
    for number in range(_SIMULATED):
        node = Simulated(number)
        for turn in range(_MINUTES * 60_000 // _EVERY_MS):
            load, top = node.measured(_START_MS + turn * _EVERY_MS)
            if load is not None:
                sizes[_LOADS].append(len(BROKER_LOADS.encode(load)))
            if top is not None:
                sizes[_TOP].append(len(TOP_BUNDLES.encode(top)))
    scale = _NODES / _SIMULATED / (_MINUTES * 60)
    return {name: Rate(len(found) * scale, sum(found) * scale) for name, found in sizes.items()}


def every_node(place: Place) -> Measured:
    """Processor time of a process that reads the brokers' loads, as every node does.

    In the details, the same with as many records as the shortest interval allows: each node tells
    its load at every measurement.
    """
    found = _judged(place, _LOADS, _written()[_LOADS].records_per_s)
    rate = _NODES * 1_000 / _EVERY_MS
    most = _judged(place, _LOADS, rate)
    details = {"records_per_s": rate, "percent": most.value, "consumed_percent": most.limit}
    return msgspec.structs.replace(
        found, details={**found.details, "told at every measurement": details}
    )


def leader(place: Place) -> Measured:
    """The same of the top bundles, which the leader reads as well."""
    return _judged(place, _TOP, _written()[_TOP].records_per_s)


def _judged(place: Place, topic: str, rate: float) -> Measured:
    count = math.ceil(rate * (_SECONDS // 4 if place.quick else _SECONDS))
    ours = _share(place, "read", topic, rate, count)
    bare = _share(place, "consume", topic, rate, count)
    return Measured(
        ours["percent"],
        "% of a core",
        ours["percent"],
        _GOAL_PERCENT,
        limit=bare["percent"],
        limit_what="just consuming the same records",
        details={
            "nodes": _NODES,
            "records_per_s": rate,
            "bytes_per_s_by_the_rules": _written()[topic].bytes_per_s,
            "percent": ours["percent"],
            "idle_percent": ours["idle"],
        },
    )


def _share(place: Place, what: str, topic: str, rate: float, count: int) -> dict[str, float]:
    topics = place.topics()
    command = [sys.executable, "-m", "bench.balance.reports", what, topic]
    command += [place.kafka.bootstrap_servers, topics.prefix, str(count)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, cwd=Path(__file__).parents[2], text=True
    ) as child:
        assert child.stdout is not None
        try:
            if child.stdout.readline() != "ready\n":
                raise RuntimeError(f"who is to {what} did not start")
            _write(place, topics, topic, rate, count)
            answer, _ = child.communicate(timeout=_CHILD_S_MAX)
        finally:
            child.kill()
    found: dict[str, float] = json.loads(answer)
    return found


def _write(place: Place, topics: Topics, topic: str, rate: float, count: int) -> None:
    """One record at a time, as nodes do that know nothing of one another."""
    nodes = [Simulated(number) for number in range(_SIMULATED)]
    told = [node.measured(_START_MS) for node in nodes]
    loads = [load for load, _ in told if load is not None]
    tops = [top for _, top in told if top is not None]
    producer = place.connection.producer(linger_ms=0)
    where = topics.broker_load if topic == _LOADS else topics.top_bundles
    values = (
        [*map(BROKER_LOADS.encode, loads)] if topic == _LOADS else [*map(TOP_BUNDLES.encode, tops)]
    )
    for number in due_times(count, rate):
        broker = f"broker-{number % _NODES}.example:8080"
        producer.produce(where, values[number % len(values)], broker.encode(), 0)
        producer.poll(0)
    if producer.flush(_CHILD_S_MAX):
        raise RuntimeError("Kafka did not take the records")


# --- the child ------------------------------------------------------------------------------------


def main(arguments: list[str]) -> int:
    what, topic, servers, prefix, count = arguments
    share = _read if what == "read" else _consume
    print(json.dumps(share(KafkaConnection(servers), Topics(prefix), topic, int(count))))
    return 0


def _read(connection: KafkaConnection, topics: Topics, topic: str, count: int) -> dict[str, float]:
    """As a node: decoded, looked at and kept by broker."""
    loads, top = KafkaBrokerLoads(connection, topics), KafkaTopBundles(connection, topics)
    top.follows = True
    known: dict[str, BrokerLoadData] = {}
    bundles: dict[str, TopBundlesLoadData] = {}

    def poll_loads() -> int:
        changes = loads.poll(_POLL_S)
        for broker, record in changes:
            if record is not None and not fault_of(record.load, _START_MS):
                known[broker] = record.load
        return len(changes)

    def poll_top() -> int:
        changes = top.poll(_POLL_S)
        bundles.update((broker, each.load) for broker, each in changes if each is not None)
        return len(changes)

    read, poll = (loads, poll_loads) if topic == _LOADS else (top, poll_top)
    while not read.is_whole:
        poll()
    found = _shares(poll, count)
    if not known and not bundles:
        raise RuntimeError("nothing that was read is sound")
    loads.close()
    top.close()
    return found


def _consume(
    connection: KafkaConnection, topics: Topics, topic: str, count: int
) -> dict[str, float]:
    consumer = connection.consumer()
    where = topics.broker_load if topic == _LOADS else topics.top_bundles
    consumer.assign([TopicPartition(where, 0, OFFSET_BEGINNING)])

    def poll() -> int:
        first = consumer.poll(_POLL_S)
        return 0 if first is None else 1 + len(consumer.consume(count, 0))

    found = _shares(poll, count)
    close_consumer(consumer)
    return found


def _shares(poll: Callable[[], int], count: int) -> dict[str, float]:
    """Percent of a core while nothing comes, and while so many records do."""

    def while_not(is_over: Callable[[], bool]) -> float:
        began, used = time.perf_counter(), time.process_time()
        while not is_over():
            left[0] -= poll()
        return 100 * (time.process_time() - used) / (time.perf_counter() - began)

    left = [count]
    calm_until = time.perf_counter() + 3.0
    idle = while_not(lambda: time.perf_counter() > calm_until)
    print("ready", flush=True)
    deadline = time.perf_counter() + _CHILD_S_MAX
    percent = while_not(lambda: left[0] <= 0 or time.perf_counter() > deadline)
    if left[0] > 0:
        raise RuntimeError(f"{left[0]} of {count} records did not come")
    return {"idle": idle, "percent": percent}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
