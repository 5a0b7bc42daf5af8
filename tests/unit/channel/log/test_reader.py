"""How far a reader of the log says it has read, whatever Kafka's client hands over together."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from confluent_kafka import Consumer, KafkaError

from anabranch.channel.kafka.connection import KafkaConnection
from anabranch.channel.log.kafka_log import KafkaLogReader


class HandsOver(KafkaConnection, frozen=True):
    """A connection whose consumer hands over these messages in one go."""

    messages: tuple[Any, ...] = ()

    def consumer(self, **_: Any) -> Consumer:
        given = SimpleNamespace(
            get_watermark_offsets=lambda *_: (0, 100),
            assign=lambda _: None,
            poll=lambda _: self.messages[0],
            consume=lambda *_: list(self.messages[1:]),
            close=lambda: None,
        )
        return cast(Consumer, given)


def record(offset: int) -> Any:
    return SimpleNamespace(
        error=lambda: None,
        offset=lambda: offset,
        value=lambda: None,
        key=lambda: b"k",
        headers=lambda: None,
        timestamp=lambda: (2, 7),
    )


def said(code: int, offset: int = -1) -> Any:
    return SimpleNamespace(error=lambda: KafkaError(code), offset=lambda: offset)


def test_an_error_behind_the_end_of_the_log_does_not_take_the_reader_back() -> None:
    end, passing = KafkaError._PARTITION_EOF, KafkaError._TRANSPORT
    messages = (record(4), said(end, 9), said(passing))  # 5 to 8: marks of transactions
    reader = KafkaLogReader(HandsOver("nowhere:1", messages=messages), "wal", 4, to_end=True)
    assert ([entry.offset for entry in reader.poll(10, 0.0)], reader.next_offset) == ([4], 9)
    reader.close()
