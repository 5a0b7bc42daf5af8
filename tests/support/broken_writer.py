"""Brings a librdkafka producer to the state in which it takes nothing more, as Kafka may."""

from __future__ import annotations

import ctypes
from pathlib import Path

import confluent_kafka

from anabranch.client._producer.segment_writer import SegmentWriter

_OUT_OF_ORDER = 45


def break_for_good(writer: SegmentWriter) -> None:
    """A fatal error of librdkafka's, raised by the function that it has for tests."""
    beside = Path(confluent_kafka.__file__).parent.parent / "confluent_kafka.libs"
    library = ctypes.CDLL(str(next(beside.glob("librdkafka*"))))  # the one that is loaded
    fail = library.rd_kafka_test_fatal_error
    fail.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p]
    # The first field of the binding's object, behind what all objects of Python begin with.
    handle = ctypes.c_void_p.from_address(id(writer._producer) + object.__basicsize__).value
    assert fail(handle, _OUT_OF_ORDER, b"made by a test") == 0
