"""The verdict on a topic names those who wrote it, and never a key."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.core.adoption.verdict import (
    KEYS_MIN,
    PartitionerJudgement,
    PartitionerVerdict,
    Sample,
    judge,
)
from anabranch.core.partitioners import Partitioner, partition_of

Writer = Callable[[bytes], int]

partitioners = st.sampled_from(Partitioner)
seeds = st.integers(0, 1 << 32)
enough = st.integers(KEYS_MIN, 4 * KEYS_MIN)
# Powers of two are apart: there the partitioners that differ by a bit are the same.
odd = st.sampled_from((3, 6, 7, 12, 50, 1000))


def keys(seed: int, count: int) -> list[bytes]:
    made = random.Random(seed)
    return [b"%d-%s" % (number, made.randbytes(made.randrange(40))) for number in range(count)]


def samples(of: Iterable[bytes], writer: Writer, *, is_tail: bool, offset: int = 0) -> list[Sample]:
    return [Sample(key, writer(key), offset + at, is_tail) for at, key in enumerate(of)]


def by(partitioner: Partitioner, partitions: int) -> Writer:
    return lambda key: partition_of(partitioner, key, partitions)


def both(of: list[bytes], writer: Writer) -> list[Sample]:
    """Half of them in the heads, the others in the tails."""
    half = len(of) // 2
    head = samples(of[:half], writer, is_tail=False)
    return head + samples(of[half:], writer, is_tail=True, offset=half)


@given(partitioners, odd, seeds, enough)
def test_a_single_writer_is_named(
    partitioner: Partitioner, partitions: int, seed: int, count: int
) -> None:
    found = judge(both(keys(seed, count), by(partitioner, partitions)), partitions)
    assert (found.verdict, found.partitioners) == (PartitionerVerdict.CERTAIN, (partitioner,))
    assert found.explained[partitioner] == found.places == found.keys == count


@given(partitioners, st.sampled_from((1, 2, 4, 8, 16, 1024)), seeds, enough)
def test_partitioners_that_agree_are_all_named(
    partitioner: Partitioner, partitions: int, seed: int, count: int
) -> None:
    of = keys(seed, count)
    found = judge(both(of, by(partitioner, partitions)), partitions)
    same = tuple(
        each
        for each in Partitioner
        if all(by(each, partitions)(key) == by(partitioner, partitions)(key) for key in of)
    )
    assert found.partitioners == same
    assert found.verdict is (
        PartitionerVerdict.SET if len(same) > 1 else PartitionerVerdict.CERTAIN
    )
    if partitions == 1:
        assert same == tuple(Partitioner)


@given(st.permutations(list(Partitioner)), odd, seeds, st.integers(2, 10))
def test_two_writers_are_told_with_the_busier_one_first(
    order: list[Partitioner], partitions: int, seed: int, every: int
) -> None:
    first, second = by(order[0], partitions), by(order[1], partitions)
    of = keys(seed, 600)
    some = [key for at, key in enumerate(of) if at % (every + 1) == 0]
    others = [key for at, key in enumerate(of) if at % (every + 1)]
    written = both(others, first) + both(some, second)
    found = judge(written, partitions)
    assert found.verdict is PartitionerVerdict.MIXED
    assert found.partitioners == (order[0], order[1])
    assert found.explained[order[0]] >= len(others)


@given(seeds, st.sampled_from((3, 12, 1000)), enough)
def test_two_writers_of_the_same_keys_are_told_and_their_keys_counted(
    seed: int, partitions: int, count: int
) -> None:
    of = keys(seed, count)
    java, crc = by(Partitioner.MURMUR2, partitions), by(Partitioner.CRC32, partitions)
    found = judge(both(of, java) + both(of, crc), partitions)
    assert found.verdict is PartitionerVerdict.MIXED
    assert set(found.partitioners) == {Partitioner.MURMUR2, Partitioner.CRC32}
    assert found.split_keys == sum(java(key) != crc(key) for key in of)


@given(seeds, st.integers(2, 1024), st.integers(2 * KEYS_MIN, 4 * KEYS_MIN))
def test_keys_at_random_are_nobodys(seed: int, partitions: int, count: int) -> None:
    anywhere = random.Random(seed)
    found = judge(both(keys(seed, count), lambda _: anywhere.randrange(partitions)), partitions)
    assert (found.verdict, found.partitioners) == (PartitionerVerdict.UNKNOWN, ())


@given(seeds, enough)
def test_a_part_of_the_key_is_not_taken_for_the_key(seed: int, count: int) -> None:
    """As Kafka Streams does with windowed keys."""
    inner = by(Partitioner.MURMUR2, 12)
    found = judge(both(keys(seed, count), lambda key: inner(key + bytes(8))), 12)
    assert found.verdict is PartitionerVerdict.UNKNOWN


@given(partitioners, seeds, st.sampled_from(((6, 12), (1, 3), (7, 50), (999, 1000))))
def test_partitions_added_long_ago_are_told(
    partitioner: Partitioner, seed: int, grown: tuple[int, int]
) -> None:
    before, now = grown
    of = keys(seed, 300)
    old = samples(of[:150], by(partitioner, before), is_tail=False)
    new = samples(of[150:], by(partitioner, now), is_tail=True, offset=9_000)
    found = judge(old + new, now)
    assert (found.verdict, found.partitioners) == (PartitionerVerdict.SINCE, (partitioner,))
    assert found.earlier_partitions == before
    assert found.since_offset is not None
    strangers = [each for each in old if by(partitioner, now)(each.key) != each.partition]
    assert max(each.offset for each in strangers) == found.since_offset - 1


@given(partitioners, odd, seeds)
def test_a_writer_before_the_present_one_is_told_apart(
    partitioner: Partitioner, partitions: int, seed: int
) -> None:
    of, anywhere = keys(seed, 300), random.Random(seed)
    old = samples(of[:150], lambda _: anywhere.randrange(partitions), is_tail=False)
    new = samples(of[150:], by(partitioner, partitions), is_tail=True, offset=9_000)
    found = judge(old + new, partitions)
    assert (found.verdict, found.partitioners) == (PartitionerVerdict.SINCE, (partitioner,))
    assert found.earlier_partitions is None


@given(partitioners, seeds)
def test_the_mirror_of_a_smaller_topic_is_unknown_with_its_sources_partitions(
    partitioner: Partitioner, seed: int
) -> None:
    found = judge(both(keys(seed, 300), by(partitioner, 7)), 12)
    assert (found.verdict, found.partitioners) == (PartitionerVerdict.UNKNOWN, (partitioner,))
    assert found.earlier_partitions == 7


@given(partitioners, seeds, st.integers(1, KEYS_MIN - 1))
def test_few_keys_tell_nothing_even_if_they_come_often(
    partitioner: Partitioner, seed: int, count: int
) -> None:
    of = keys(seed, count)
    found = judge(both(of * 20, by(partitioner, 12)), 12, unkeyed=1_000)
    assert (found.verdict, found.keys, found.partitioners) == (
        PartitionerVerdict.TOO_FEW,
        count,
        (),
    )


def test_it_takes_64_keys() -> None:
    of = keys(1, 64)
    java = by(Partitioner.MURMUR2, 12)
    assert judge(both(of, java), 12).verdict is PartitionerVerdict.CERTAIN
    assert judge(both(of[:63], java), 12).verdict is PartitionerVerdict.TOO_FEW


@given(partitioners, odd, seeds)
def test_few_new_keys_do_not_name_a_new_writer(
    partitioner: Partitioner, partitions: int, seed: int
) -> None:
    of, anywhere = keys(seed, 263), random.Random(seed)
    old = samples(of[:200], lambda _: anywhere.randrange(partitions), is_tail=False)
    new = samples(of[200:], by(partitioner, partitions), is_tail=True)
    assert judge(old + new, partitions).verdict is PartitionerVerdict.UNKNOWN


@given(seeds)
def test_one_partition_for_all_keys_is_nobodys(seed: int) -> None:
    found = judge(both(keys(seed, 200), lambda _: 0), 12)
    assert (found.verdict, found.partitioners) == (PartitionerVerdict.UNKNOWN, ())


def test_without_keys_the_topic_is_unkeyed_and_without_records_too_few() -> None:
    empty = [Sample(b"", 3, 0, is_tail=True)] * 100
    assert judge(empty, 12, unkeyed=5).verdict is PartitionerVerdict.UNKEYED
    assert judge([], 12).verdict is PartitionerVerdict.TOO_FEW
    assert judge([], 1).verdict is PartitionerVerdict.SET


@given(partitioners, seeds)
def test_empty_keys_may_lie_anywhere(partitioner: Partitioner, seed: int) -> None:
    anywhere = [Sample(b"", number, 0, is_tail=True) for number in range(12)]
    found = judge(anywhere + both(keys(seed, 200), by(partitioner, 12)), 12)
    assert (found.partitioners, found.split_keys) == ((partitioner,), 0)


@pytest.mark.parametrize("partitions", [1, 2, 12])
def test_no_key_is_told(partitions: int) -> None:
    planted = b"planted-key"
    every = [planted + b"%d" % number for number in range(200)]
    written = both(every, by(Partitioner.CRC32, partitions))
    found = judge(written, partitions)
    told = f"{written!r}{found!r}{msgspec.json.encode(found)!r}"
    assert "planted" not in told
    assert msgspec.json.decode(msgspec.json.encode(found), type=PartitionerJudgement) == found
