"""Whether an entry fits another layout as it is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.core.entities.layout import SegmentLayout
from anabranch.core.errors import InvalidInputError
from anabranch.core.hashing import bucket_of, hash32, segment_hash
from anabranch.core.topics.entries import (
    ENTRY_MAX,
    EntryBounds,
    bounds_headers,
    bounds_in,
    bounds_of,
    place_of,
)

POSITIONS = st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=5)


def test_bounds_are_those_of_the_messages_not_of_their_bucket() -> None:
    assert bounds_of([0x1000_4001, 0x0FFF_7FFE]) == EntryBounds(0x0FFF, 0x1000, 0x4001, 0x7FFE)
    with pytest.raises(InvalidInputError, match="without messages"):
        bounds_of([])


@given(positions=POSITIONS, segments=st.integers(1, 9), budget=st.integers(1, 40))
def test_an_entry_fits_exactly_when_all_its_bounds_are_in_one_bucket(
    positions: list[int], segments: int, budget: int
) -> None:
    layout = SegmentLayout.initial(segments, budget)
    homes = set()
    for position in positions:
        part = layout.find_active_segment(segment_hash(position))
        homes.add((part.segment_id, bucket_of(position, part.buckets)))
    found = place_of(bounds_of(positions), layout)
    # The two halves are bounded apart, so an entry in one bucket always fits, and one that fits
    # has all its messages in one bucket.
    assert (found is not None) == (len(homes) == 1)
    assert found is None or found in homes


def test_a_message_of_a_key_fits_every_layout() -> None:
    bounds = bounds_of([hash32("ada")])
    layout = SegmentLayout.initial(3, 64)
    assert place_of(bounds, layout) is not None
    assert place_of(bounds, layout.split_segment(0).split_segment(1)) is not None


@given(positions=POSITIONS)
def test_bounds_survive_the_headers(positions: list[int]) -> None:
    bounds = bounds_of(positions)
    assert bounds_in([("other", None), *bounds_headers(bounds)]) == bounds


def test_headers_without_bounds_say_nothing_and_broken_ones_are_refused() -> None:
    assert bounds_in(None) is None
    assert bounds_in([("trace", b"1")]) is None
    whole = bounds_headers(EntryBounds(1, 2, 3, 4))
    for broken in (whole[:3], [*whole[:3], (ENTRY_MAX, b"x")], [*whole[:3], (ENTRY_MAX, b"2")]):
        with pytest.raises(InvalidInputError, match=ENTRY_MAX):
            bounds_in(broken)
    for place in range(4):
        for no_bound in (b"x", b"-1", b"65536"):
            name = whole[place][0]
            with pytest.raises(InvalidInputError, match=name):
                bounds_in([*whole[:place], (name, no_bound), *whole[place + 1 :]])
    for far in (b"65536", b"9" * 5_000):
        with pytest.raises(InvalidInputError, match="65535"):
            bounds_in([*whole[:3], (ENTRY_MAX, far)])
