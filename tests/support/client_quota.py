"""A quota of Kafka's by which it throttles clients of one id (AlterClientQuotas, KIP-546)."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Final

from anabranch.wire.kafka.protocol import (
    NO_TAGS,
    BrokerConnection,
    array,
    bootstrap_addresses,
    text,
)
from support.waiting import WAIT_S

_ALTER: Final = 49
_VERSION: Final = 1


@contextmanager
def client_quota(servers: str, client_id: str, bytes_per_s: float) -> Iterator[None]:
    """What producers of that id may write, meanwhile."""
    _alter(servers, client_id, bytes_per_s, remove=False)
    try:
        yield
    finally:
        _alter(servers, client_id, bytes_per_s, remove=True)


def _alter(servers: str, client_id: str, bytes_per_s: float, *, remove: bool) -> None:
    who = array([text("client-id") + text(client_id) + NO_TAGS])
    what = array([text("producer_byte_rate") + struct.pack(">d?", bytes_per_s, remove) + NO_TAGS])
    (address,) = bootstrap_addresses(servers)
    with closing(BrokerConnection(address, {}, WAIT_S)) as connection:
        asked = array([who + what + NO_TAGS]) + b"\0" + NO_TAGS
        answer = connection.ask(_ALTER, _VERSION, asked)
    answer.skip(4)  # throttle time
    assert answer.count() == 1
    assert answer.unpack(">h") == (0,)
