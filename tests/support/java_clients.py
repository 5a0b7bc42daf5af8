"""Kafka's own clients, in a Java that runs beside the tests."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from py4j.java_gateway import GatewayParameters, JavaGateway

from anabranch.jars.cache import resolve
from anabranch.jars.ivy import pyspark_jars
from anabranch.jars.java import find_java

_PORT_S_MAX = 60.0
_BYTES = "org.apache.kafka.common.serialization.ByteArraySerializer"


@contextmanager
def java_clients() -> Iterator[Any]:
    """Yields the view of a Java with Kafka's clients: its classes by their full names."""
    (gateway_jar,) = pyspark_jars().glob("py4j-*.jar")
    jars = os.pathsep.join(map(str, (gateway_jar, *resolve("kafka"))))
    # It ends with its standard input.
    java: list[str | Path] = [find_java(), "-XX:TieredStopAtLevel=1", "-Xmx256m", "-cp", jars]
    process = subprocess.Popen(
        [*java, "py4j.GatewayServer", "--die-on-broken-pipe", "0"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    try:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auto_convert=True))
        try:
            yield gateway.jvm
        finally:
            gateway.close()
    finally:
        process.kill()
        process.communicate()


def java_producer(java: Any, servers: str, settings: Mapping[str, str] | None = None) -> Any:
    """Returns a `KafkaProducer` of keys and values in bytes."""
    properties = java.java.util.Properties()
    for name, value in {"bootstrap.servers": servers, **(settings or {})}.items():
        properties.put(name, value)
    for name in ("key.serializer", "value.serializer"):
        properties.put(name, _BYTES)
    return java.org.apache.kafka.clients.producer.KafkaProducer(properties)


def java_send(java: Any, producer: Any, topic: str, keys: Iterable[bytes | None]) -> None:
    """Sends a record for each key, and waits for all."""
    record = java.org.apache.kafka.clients.producer.ProducerRecord
    for key in keys:
        producer.send(record(topic, key, b"value"))
    producer.flush()
