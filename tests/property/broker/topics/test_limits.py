"""What a topic is let grow to can be told to clients: no message about it exceeds a frame."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from anabranch.broker.binary.forms import ClientSettings, assignment_form
from anabranch.broker.topics.policies import fits_clients, layout_bytes_max
from anabranch.core.entities.layout import initial_segments
from anabranch.core.entities.segment import BUCKETS_MAX, RING16_END, SegmentInfo, SegmentState
from anabranch.core.entities.subscription import (
    SegmentPositions,
    Subscription,
    SubscriptionKind,
)
from anabranch.core.subscriptions.coordinator import ConsumerAssignment
from anabranch.wire.anabranch_pb2 import CommandScalableTopicAssignmentUpdate
from anabranch.wire.framing import FRAME_BYTES_MAX, encode_frame
from support.open_topic import topic_of

PREFIX = "anabranch."
PLACE = ClientSettings(PREFIX, "kafka:9092", 1_048_588, 10_000)
INCARNATION = 10**12 - 1
MOST = 2**63 - 1  # of an offset, and of a fence
KNOWN = Subscription(1, SubscriptionKind.STREAM, 7, ("a",), (1,), (), 0, 0, "")
IDS = st.integers(0, 10**9)
EDGES = st.lists(st.integers(0, RING16_END), min_size=2, max_size=2).map(sorted)
NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=255)


@st.composite
def segments(draw: st.DrawFn) -> SegmentInfo:
    """One segment with any numbers, which are all that counts for its size."""
    start, end = draw(EDGES)
    buckets = draw(st.sampled_from((1, 2, 130, BUCKETS_MAX)))
    is_sealed = draw(st.booleans())
    return SegmentInfo(
        segment_id=draw(IDS),
        start=start,
        end=end,
        state=SegmentState.SEALED if is_sealed else SegmentState.ACTIVE,
        parent_ids=(),
        child_ids=(),
        created_at_epoch=0,
        sealed_at_epoch=int(is_sealed),
        created_at_ms=0,
        sealed_at_ms=int(is_sealed),
        buckets=buckets,
        end_offsets=(draw(st.integers(0, 2**63 - 1)),) * buckets if is_sealed else (),
    )


def assignment_frame(
    name: str, parts: tuple[SegmentInfo, ...], known: Subscription = KNOWN, *, left: int = 0
) -> int:
    """Bytes of the command that assigns all of these segments to one consumer.

    `left`: of each with more than one bucket, so many are another's.
    """
    topic = topic_of(INCARNATION, parts)
    shares = tuple((part.segment_id, tuple(range(max(1, part.buckets - left)))) for part in parts)
    fences = tuple((MOST,) * len(buckets) for _, buckets in shares)
    assignment = ConsumerAssignment(1, 1, shares, fences=fences)
    form = assignment_form(PLACE, name, topic, "billing", known, assignment, {})
    assert len(form.segments) == len(parts)
    update = CommandScalableTopicAssignmentUpdate(consumer_id=1, assignment=form)
    return len(encode_frame(update.SerializeToString()))


@given(NAMES, st.lists(segments(), max_size=30, unique_by=lambda part: part.segment_id))
def test_no_assignment_of_a_topic_to_one_consumer_exceeds_the_bound_of_its_size(
    local: str, parts: list[SegmentInfo]
) -> None:
    name = f"public/default/{local}"
    positions = tuple(SegmentPositions(p.segment_id, (MOST,) * p.buckets) for p in parts)
    told_where_to_begin = replace(KNOWN, positions=positions)
    lengths = 4  # of the messages around the segments
    for known, left in ((KNOWN, 0), (told_where_to_begin, 0), (told_where_to_begin, 1)):
        head = assignment_frame(name, (), known)
        size = assignment_frame(name, tuple(parts), known, left=left) - head
        assert size <= layout_bytes_max(PREFIX, name, parts) + lengths


@pytest.mark.parametrize("length", [1, 40, 255])
def test_the_widest_topic_that_is_let_be_can_be_assigned_to_one_consumer(length: int) -> None:
    name = f"public/default/{'x' * length}"
    fewest, most = 1, 60_000
    while most - fewest > 1:
        middle = (fewest + most) // 2
        fits = fits_clients(PREFIX, name, initial_segments(middle))
        fewest, most = (middle, most) if fits else (fewest, middle)
    assert assignment_frame(name, initial_segments(fewest)) > FRAME_BYTES_MAX * 0.4
