"""What a partition's leader knows of a producer: how many of its messages the partition has stored.

Kafka keeps, per partition and idempotent producer, the sequence number of the last message stored.
Numbers begin at 0 and have no gap, so it tells exactly how many were stored. librdkafka has no call
for it (DescribeProducers, KIP-664), so it is asked for here, over a connection of its own. That
needs no header in the messages and reads none of them. Where SASL guards Kafka the messages carry a
header instead (`settlement`): its mechanisms are librdkafka's own.
"""

from __future__ import annotations

import socket
import ssl
import struct
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final, NamedTuple

from anabranch.client.errors import UnknownOutcomeError
from anabranch.client.grants import Partition

SEQUENCES: Final = 2**31  # then they begin at 0 again
_DESCRIBE_PRODUCERS: Final = 61
_ANSWER_BYTES_MAX: Final = 64 * 1024 * 1024
_PASSING: Final = (5, 6, 7)  # no leader, not the leader, timed out
_NOT_YET: Final = (3, *_PASSING)  # or it does not know the partition
_AGAIN_S: Final = 0.002
_FALSE: Final = ("false", "f", "0")  # so librdkafka reads what is true or not
_SSL: Final = frozenset(
    {
        "security.protocol",
        "client.id",
        "ssl.ca.location",
        "ssl.certificate.location",
        "ssl.key.location",
        "ssl.key.password",
        "enable.ssl.certificate.verification",
        "ssl.endpoint.identification.algorithm",
    }
)


class ProducerState(NamedTuple):
    """`last_sequence`: of the last message that the partition stored of the producer."""

    producer_id: int
    epoch: int
    last_sequence: int


def can_ask(kafka: Mapping[str, Any]) -> bool:
    """Whether a Kafka with these security properties can be asked.

    What librdkafka finds by itself, in a folder or by looking around ("probe"), we do not.
    """
    authorities = kafka.get("ssl.ca.location")
    if authorities is not None and (authorities == "probe" or not Path(str(authorities)).is_file()):
        return False
    protocol = str(kafka.get("security.protocol", "plaintext")).lower()
    return protocol in ("plaintext", "ssl") and set(kafka) <= _SSL


def ask(
    leader: tuple[str, int],
    partition: Partition,
    kafka: Mapping[str, Any],
    timeout_s: float,
) -> list[ProducerState]:
    """All producers that the leader knows of a partition. Blocks.

    Raises OSError when the leader is out of reach, UnknownOutcomeError when it does not answer the
    question.
    """
    topic, number = partition
    with closing(_Connection(leader, kafka, timeout_s)) as connection:
        (found,) = connection.describe(topic, [number])
    if found.error in _PASSING:
        raise ConnectionAbortedError(f"{topic}[{number}] moves to another leader")
    if found.error:
        raise UnknownOutcomeError(
            f"Kafka does not tell the producers of {topic}[{number}]: error {found.error} "
            f"{found.message}; it takes the right to read the topic"
        )
    return found.states


def await_leading(
    leader: tuple[str, int],
    topic: str,
    partitions: Sequence[int],
    kafka: Mapping[str, Any],
    timeout_s: float,
) -> None:
    """Returns when the broker leads those partitions, or says why it will not tell. Blocks.

    A topic is in Kafka's metadata before its leaders lead. Raises OSError, TimeoutError when that
    takes longer, UnknownOutcomeError.
    """
    deadline = time.monotonic() + timeout_s
    with closing(_Connection(leader, kafka, timeout_s)) as connection:
        while True:
            found = connection.describe(topic, partitions)
            partitions = [each.partition for each in found if each.error in _NOT_YET]
            if not partitions:
                return
            if time.monotonic() > deadline:
                raise TimeoutError(f"{leader[0]}:{leader[1]} does not lead {topic}{partitions}")
            time.sleep(_AGAIN_S)


class _Partition(NamedTuple):
    partition: int
    error: int
    message: str
    states: list[ProducerState]


class _Connection:
    """To one broker."""

    def __init__(
        self, address: tuple[str, int], kafka: Mapping[str, Any], timeout_s: float
    ) -> None:
        self._address = address
        plain = socket.create_connection(address, timeout_s)
        try:
            self._stream = _secured(plain, address[0], kafka)
        except BaseException:
            plain.close()
            raise

    def close(self) -> None:
        self._stream.close()

    def describe(self, topic: str, partitions: Sequence[int]) -> list[_Partition]:
        self._stream.sendall(_request(topic, partitions))
        size = int.from_bytes(_exactly(self._stream, 4), "big")
        if not 0 < size <= _ANSWER_BYTES_MAX:
            host, port = self._address
            raise UnknownOutcomeError(f"{host}:{port} does not speak Kafka's protocol")
        return _answer(_Reader(_exactly(self._stream, size)))


def _secured(plain: socket.socket, host: str, kafka: Mapping[str, Any]) -> socket.socket:
    if str(kafka.get("security.protocol", "plaintext")).lower() != "ssl":
        return plain
    return ssl_context(kafka).wrap_socket(plain, server_hostname=host)


def ssl_context(kafka: Mapping[str, Any]) -> ssl.SSLContext:
    """What librdkafka makes of the same properties. Raises OSError."""
    context = ssl.create_default_context(cafile=kafka.get("ssl.ca.location"))
    if str(kafka.get("ssl.endpoint.identification.algorithm", "https")).lower() == "none":
        context.check_hostname = False
    if str(kafka.get("enable.ssl.certificate.verification", "true")).lower() in _FALSE:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if "ssl.certificate.location" in kafka:
        context.load_cert_chain(
            kafka["ssl.certificate.location"],
            kafka.get("ssl.key.location"),
            kafka.get("ssl.key.password"),
        )
    return context


def _request(topic: str, partitions: Sequence[int]) -> bytes:
    """DescribeProducers, version 0, which is "flexible": lengths are counted from 1."""
    name = topic.encode()
    header = struct.pack(">hhih", _DESCRIBE_PRODUCERS, 0, 1, 9) + b"anabranch" + b"\0"
    numbers = _varint(len(partitions) + 1) + struct.pack(f">{len(partitions)}i", *partitions)
    topics = b"\x02" + _varint(len(name) + 1) + name + numbers
    body = header + topics + b"\0\0"
    return struct.pack(">i", len(body)) + body


def _answer(reader: _Reader) -> list[_Partition]:
    reader.skip(4)  # correlation id
    reader.tags()
    reader.skip(4)  # throttle time
    found = []
    for _ in range(reader.varint() - 1):
        reader.skip(reader.varint() - 1)  # topic
        for _ in range(reader.varint() - 1):
            partition, error = reader.unpack(">ih")
            message = reader.take(max(0, reader.varint() - 1)).decode(errors="replace")
            states = []
            for _ in range(reader.varint() - 1):
                producer_id, epoch, last = reader.unpack(">qii")
                reader.skip(8 + 4 + 8)  # last timestamp, coordinator epoch, transaction's start
                reader.tags()
                states.append(ProducerState(producer_id, epoch, last))
            reader.tags()
            found.append(_Partition(partition, error, message, states))
        reader.tags()
    return found


class _Reader:
    """Kafka's primitive types out of bytes."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, count: int) -> bytes:
        self._at += count
        if self._at > len(self._data):
            raise UnknownOutcomeError("Kafka's answer about its producers was cut short")
        return self._data[self._at - count : self._at]

    def skip(self, count: int) -> None:
        self.take(count)

    def unpack(self, form: str) -> tuple[int, ...]:
        return struct.unpack(form, self.take(struct.calcsize(form)))

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def tags(self) -> None:
        for _ in range(self.varint()):
            self.varint()
            self.skip(self.varint())


def _varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _exactly(stream: socket.socket, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        part = stream.recv(min(65_536, count - len(data)))
        if not part:
            raise ConnectionResetError("Kafka closed the connection instead of answering")
        data += part
    return bytes(data)
