"""The calls that a Kafka answers, as it tells them (ApiVersions, KIP-511)."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from typing import Any, Final

from anabranch.wire.kafka.protocol import (
    API_VERSIONS,
    NO_TAGS,
    Address,
    BrokerConnection,
    KafkaProtocolError,
    ResponseReader,
    text,
)

_VERSION: Final = 3


def newest_calls(address: Address, kafka: Mapping[str, Any], timeout_s: float) -> dict[int, int]:
    """Returns the newest version of each call, by the call's number, of the broker there.

    `kafka` has properties that `can_ask` accepts. Raises OSError or KafkaProtocolError.
    """
    body = text("anabranch") + text("1") + NO_TAGS
    with closing(BrokerConnection(address, kafka, timeout_s)) as connection:
        return _read(connection.ask(API_VERSIONS, _VERSION, body))


def _read(reader: ResponseReader) -> dict[int, int]:
    (error,) = reader.unpack(">h")
    if error:
        raise KafkaProtocolError(f"Kafka does not tell its calls: error {error}")
    calls = {}
    for _ in range(reader.count()):
        number, _, newest = reader.unpack(">hhh")
        reader.tags()
        calls[number] = newest
    return calls
