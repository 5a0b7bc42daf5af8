"""Samples are the first and the last records with a key of each partition."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from anabranch.wire.kafka.sampling import SAMPLES_MAX, Seen, Spans, sample
from anabranch.wire.kafka.stored import StoredRecord

keyed = st.builds(lambda number: b"%d" % number, st.integers(0, 50))
Run = tuple[bytes | None, int, bool]  # a key, so many times, and whether there is no hole instead
# Long runs without a key, and holes.
runs = st.lists(
    st.tuples(st.one_of(st.none(), keyed), st.integers(1, 700), st.booleans()), max_size=8
)


def written(of: list[Run], start: int) -> list[StoredRecord]:
    keys = [(key, is_there) for key, count, is_there in of for _ in range(count)]
    return [
        StoredRecord(start + at, key, b"") for at, (key, is_there) in enumerate(keys) if is_there
    ]


@given(
    st.lists(runs, min_size=1, max_size=3),
    st.integers(0, 10_000),
    st.dictionaries(st.integers(0, 2), st.integers(1, 3_000)),
)
def test_heads_and_tails_are_samples(
    partitions: list[list[Run]], start: int, cut_at: dict[int, int]
) -> None:
    """`cut_at`: records of a look at that partition, as if they were large."""
    stored = {n: written(of, start) for n, of in enumerate(partitions)}
    ends = {n: start + sum(count for _, count, _ in of) for n, of in enumerate(partitions)}
    last: dict[int, int] = {}

    def read(spans: Spans, keyed_max: int) -> Seen:
        seen = Seen({}, {"none", ""}, set())
        for n, (begin, end) in spans.items():
            assert start <= begin < end <= ends[n]
            assert end <= last.get(n, end), "an offset is read twice"
            last[n] = begin if n not in cut_at else end
            kept = seen.records.setdefault(n, [])
            for each in stored[n]:
                if sum(one.key is not None for one in kept) >= keyed_max:
                    break
                if len(kept) >= cut_at.get(n, 1 << 30):
                    seen.cut.add(n)
                    break
                if begin <= each.offset < end:
                    kept.append(each)
        return seen

    found = sample(read, {n: (start, end) for n, end in ends.items()})
    for n, records in stored.items():
        offsets = [each.offset for each in records if each.key is not None]
        tail = [each.offset for each in found.keyed if each.partition == n and each.is_tail]
        head = [each.offset for each in found.keyed if each.partition == n and not each.is_tail]
        assert len(tail) <= SAMPLES_MAX
        assert len(head) <= SAMPLES_MAX
        assert not set(tail) & set(head)
        assert head == offsets[: len(head)]
        if n not in cut_at:
            assert tail == offsets[len(offsets) - len(tail) :]
        else:
            assert all(each >= ends[n] - 18 * SAMPLES_MAX for each in tail)
        if ends[n] - start <= 2 * SAMPLES_MAX and n not in cut_at:
            assert len(head) + len(tail) == len(offsets)
    assert found.codecs == ("none",) * bool(partitions)
    assert found.registry_keys == 0


def test_the_newest_of_large_records_are_the_tail() -> None:
    def read(spans: Spans, keyed_max: int) -> Seen:
        """Gives 50 records of each look."""
        seen = Seen({}, set(), set())
        for n, (begin, end) in spans.items():
            offsets = range(begin, min(end, begin + 50))
            seen.records[n] = [StoredRecord(offset, b"key", b"") for offset in offsets]
            if end > begin + 50:
                seen.cut.add(n)
        return seen

    found = sample(read, {0: (0, 300)})
    assert [each.offset for each in found.keyed if each.is_tail] == list(range(242, 300))
    assert [each.offset for each in found.keyed if not each.is_tail] == list(range(50))
