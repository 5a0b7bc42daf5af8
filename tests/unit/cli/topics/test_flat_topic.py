"""The origin of a copied message, and whether a reader of segments has it yet to read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.cli.topics.flat_topic import Origin

_NUMBERS = st.integers(0, 2**62)
# Segment 1 was drained and is gone; segment 5 came after the positions were told.
_POSITIONS = {2: [4, 4], 3: [0]}


@given(_NUMBERS, _NUMBERS, _NUMBERS)
def test_a_copy_tells_its_origin(segment_id: int, bucket: int, offset: int) -> None:
    origin = Origin(57, segment_id, bucket, offset)
    assert Origin.read(origin.header()) == origin


@pytest.mark.parametrize(
    "told", [None, b"", b"1/1/1", b"1/1@1", b"1/1/1/1@1", b"-1/1/1@1", b"1/1/1@\xff"]
)
def test_what_is_no_origin_is_somebody_elses_message(told: bytes | None) -> None:
    assert Origin.read(told) is None


@pytest.mark.parametrize(
    ("origin", "is_unread"),
    [
        (Origin(57, 2, 0, 3), False),
        (Origin(57, 2, 0, 4), True),
        (Origin(57, 3, 0, 0), True),
        (Origin(57, 1, 0, 9), False),
        (Origin(57, 5, 0, 0), True),
    ],
)
def test_a_reader_has_yet_to_read_what_lies_at_its_position_or_behind(
    origin: Origin, is_unread: bool
) -> None:
    assert origin.is_unread(_POSITIONS) is is_unread
