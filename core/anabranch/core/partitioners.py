"""The partition that a client of Kafka gives to a key, by its partitioner.

Each partitioner makes a number of the key's bytes. Its remainder by the number of partitions is the
partition. Records without a key go anywhere, and librdkafka's default sends those with an empty key
anywhere, too.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from enum import Enum, unique
from struct import iter_unpack
from types import MappingProxyType
from typing import Final

_SEED: Final = 0x9747B28C  # of Kafka's clients
_FACTOR: Final = 0x5BD1E995
_FNV_BASIS: Final = 0x811C9DC5
_FNV_PRIME: Final = 0x01000193
_BITS32: Final = 0xFFFFFFFF
_BITS31: Final = 0x7FFFFFFF


@unique
class Partitioner(Enum):
    """The ways of clients. The order is that in which they are named."""

    MURMUR2 = "murmur2"  # of Java, franz-go, kafka-python, aiokafka, KafkaJS 2
    CRC32 = "crc32"  # of librdkafka (`consistent_random`) and ruby-kafka
    FNV1A = "fnv1a"  # of Sarama, kafka-go, and librdkafka (`fnv1a_random`)
    FNV1A_REFERENCE = "fnv1a_reference"  # of Sarama's `NewReferenceHashPartitioner`
    FNV1A_UNSIGNED = "fnv1a_unsigned"  # of franz-go's `SaramaHasher`
    MURMUR2_UNSIGNED = "murmur2_unsigned"  # of kafka_ex 1


def partition_of(partitioner: Partitioner, key: bytes, partitions: int) -> int:
    """Returns the partition of a key in a topic of so many partitions, at least one.

    >>> partition_of(Partitioner.MURMUR2, b"order-17", 12)
    9
    """
    return NUMBERS[partitioner](key) % partitions


def murmur2(key: bytes) -> int:
    """Returns Kafka's murmur2, 32 bits (`Utils.murmur2` in its clients).

    >>> hex(murmur2(b"foobar"))
    '0xd0e47bbe'
    """
    length = len(key)
    whole = length & ~3
    number = _SEED ^ length
    for (word,) in iter_unpack("<I", key[:whole]):
        word = word * _FACTOR & _BITS32
        number = (number * _FACTOR ^ (word ^ word >> 24) * _FACTOR) & _BITS32
    if whole != length:
        number = (number ^ int.from_bytes(key[whole:], "little")) * _FACTOR & _BITS32
    number = (number ^ number >> 13) * _FACTOR & _BITS32
    return number ^ number >> 15


def fnv1a(key: bytes) -> int:
    """Returns FNV-1a, 32 bits.

    >>> hex(fnv1a(b"kafka"))
    '0xd33c4e1'
    """
    number = _FNV_BASIS
    for byte in key:
        number = (number ^ byte) * _FNV_PRIME & _BITS32
    return number


def _signed(number: int) -> int:
    """Returns the size of the number that these 32 bits are in two's complement.

    Its remainder is that of the signed number without its sign.
    """
    return number if number <= _BITS31 else (_BITS32 + 1) - number


NUMBERS: Final[Mapping[Partitioner, Callable[[bytes], int]]] = MappingProxyType(
    {
        Partitioner.MURMUR2: lambda key: murmur2(key) & _BITS31,
        Partitioner.CRC32: zlib.crc32,
        Partitioner.FNV1A: lambda key: _signed(fnv1a(key)),
        Partitioner.FNV1A_REFERENCE: lambda key: fnv1a(key) & _BITS31,
        Partitioner.FNV1A_UNSIGNED: fnv1a,
        Partitioner.MURMUR2_UNSIGNED: murmur2,
    }
)
