"""Keys lie where clients of Kafka put them."""

from __future__ import annotations

import random
import zlib

import pytest
from aiokafka.partitioner import DefaultPartitioner

from anabranch.core.partitioners import Partitioner, fnv1a, murmur2, partition_of

Vector = tuple[bytes, int, int, int, int, int, int, int, int, int]
# Key, murmur2, Java's, unsigned, CRC-32, its, FNV-1a, Sarama's, reference, unsigned: of 12.
# Kafka's UtilsTest and librdkafka's unit tests have some of these keys, too.
VECTORS: list[Vector] = [
    (b"", 0x106E08D9, 9, 9, 0x00000000, 0, 0x811C9DC5, 3, 5, 1),
    (b"a", 0xA2D0B27C, 4, 0, 0xE8B7BE43, 3, 0xE40C292C, 0, 8, 4),
    (b"abc", 0x1C94221B, 3, 3, 0x352441C2, 6, 0x1A47E90B, 11, 11, 11),
    (b"21", 0xC5F2F8EC, 0, 8, 0xFD7746B4, 4, 0x8CF297EC, 0, 8, 4),
    (b"foobar", 0xD0E47BBE, 6, 2, 0x9EF61F95, 5, 0xBF9CF968, 0, 8, 4),
    (b"kafka", 0xD067CF64, 4, 0, 0x5BBC7517, 11, 0x0D33C4E1, 5, 5, 5),
    (b"order-17", 0x5D7AA5F1, 9, 9, 0x5AEA0614, 8, 0xD43044AE, 6, 2, 10),
    (b"ada", 0x92AC648D, 5, 1, 0x8D708768, 0, 0x38390DBB, 7, 7, 7),
    (b"bob", 0x85EBCACE, 6, 2, 0xF5CBB140, 8, 0x86C6A0D4, 8, 0, 8),
    ("Zürich".encode(), 0xA38B7831, 1, 9, 0xD30BA93E, 6, 0xD7007F20, 8, 0, 8),
    (b"\x00\x01\x02\xff", 0xAB3D9A3A, 10, 6, 0x3FB23824, 0, 0x6FAB6075, 9, 9, 9),
    (b"\x00\x00\x00\x07", 0xC2B47AEB, 3, 11, 0xBF204ABF, 11, 0x4495EA10, 8, 8, 8),
    (b"\0" * 7 + b"\x07", 0x2C965F5B, 11, 11, 0xFB464ACA, 6, 0x94E16660, 0, 8, 4),
]
KEYS = [random.Random(length).randbytes(length) for length in range(51)]
PARTITIONS = (1, 2, 3, 8, 12, 1000)


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector[0].hex() or "empty")
def test_a_key_has_the_numbers_and_partitions_of_the_clients(vector: Vector) -> None:
    key, java_number, java, unsigned, crc_number, crc, fnv_number, *fnv = vector
    assert (murmur2(key), zlib.crc32(key), fnv1a(key)) == (java_number, crc_number, fnv_number)
    assert [partition_of(each, key, 12) for each in Partitioner] == [java, crc, *fnv, unsigned]


@pytest.mark.parametrize("partitions", PARTITIONS)
def test_aiokafka_puts_keys_where_murmur2_does(partitions: int) -> None:
    numbers = list(range(partitions))
    for key in KEYS:
        told = DefaultPartitioner()(key, numbers, numbers)
        assert partition_of(Partitioner.MURMUR2, key, partitions) == told


@pytest.mark.parametrize("partitioner", Partitioner)
@pytest.mark.parametrize("partitions", PARTITIONS)
def test_a_key_lies_in_a_partition_that_there_is(partitioner: Partitioner, partitions: int) -> None:
    assert {partition_of(partitioner, key, partitions) for key in KEYS} <= set(range(partitions))
