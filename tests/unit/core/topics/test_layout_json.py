"""Layouts and segments as text: the JSON of PIP-468, descriptors, and Kafka's names."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from anabranch.core.errors import InvalidInputError
from anabranch.core.topics.kafka_names import kafka_group, kafka_topic
from anabranch.core.topics.layout import SegmentLayout
from anabranch.core.topics.segment import new_segment, parse_descriptor

# "Metadata Store Schema" of PIP-468, as it is printed there.
PIP_468 = """{
  "epoch": 3,
  "nextSegmentId": 5,
  "segments": {
    "0": { "segmentId": 0, "hashRange": {"start": 0, "end": 65535}, "state": "SEALED",
           "parentIds": [], "childIds": [1, 2], "createdAtEpoch": 0, "sealedAtEpoch": 1 },
    "1": { "segmentId": 1, "hashRange": {"start": 0, "end": 32767}, "state": "SEALED",
           "parentIds": [0], "childIds": [3, 4], "createdAtEpoch": 1, "sealedAtEpoch": 3 },
    "2": { "segmentId": 2, "hashRange": {"start": 32768, "end": 65535}, "state": "ACTIVE",
           "parentIds": [0], "childIds": [], "createdAtEpoch": 1, "sealedAtEpoch": 0 },
    "3": { "segmentId": 3, "hashRange": {"start": 0, "end": 16383}, "state": "ACTIVE",
           "parentIds": [1], "childIds": [], "createdAtEpoch": 3, "sealedAtEpoch": 0 },
    "4": { "segmentId": 4, "hashRange": {"start": 16384, "end": 32767}, "state": "ACTIVE",
           "parentIds": [1], "childIds": [], "createdAtEpoch": 3, "sealedAtEpoch": 0 }
  },
  "properties": {}
}"""
ADDED = {"createdAtMs", "sealedAtMs", "entryBucketSplits", "endOffsets"}


def ranges(layout: SegmentLayout) -> list[tuple[int, int, int]]:
    """Id, start and end of the active segments, in ring order."""
    return [(part.segment_id, part.start, part.end) for part in layout.active]


def twice_split() -> SegmentLayout:
    """Segment 0 split into 1 and 2, then 1 into 3 and 4."""
    return SegmentLayout.initial(1).split_segment(0).split_segment(1)


# --- JSON -----------------------------------------------------------------------------------


def test_the_example_of_pip_468_is_read_and_written_to_the_letter() -> None:
    """Its names, values and order; what is added comes after them."""
    example = json.loads(PIP_468)
    layout = SegmentLayout.from_metadata(example)
    written = layout.to_metadata()
    for part in written["segments"].values():
        assert set(list(part)[-len(ADDED) :]) == ADDED
        for name in ADDED:
            del part[name]
    assert json.dumps(written) == json.dumps(example)
    assert ranges(layout) == [(3, 0, 16383), (4, 16384, 32767), (2, 32768, 65535)]


def test_the_operations_of_the_example_make_the_example() -> None:
    made = SegmentLayout.initial(1, bucket_budget=1).split_segment(0)
    made = made.replaced((1,), made.split_children(1), {}, 0, epoch=3)
    assert made == SegmentLayout.from_metadata(json.loads(PIP_468))


def test_layouts_that_differ_anywhere_are_not_equal() -> None:
    layout = twice_split()
    assert layout == SegmentLayout.from_metadata(layout.to_metadata())
    for name, value in (("epoch", 9), ("nextSegmentId", 9), ("properties", {"a": "b"})):
        assert layout != SegmentLayout.from_metadata(layout.to_metadata() | {name: value})
    assert layout != layout.split_segment(2)
    assert layout != "a layout"


def test_what_is_added_to_the_json_survives() -> None:
    layout = SegmentLayout.initial(1, bucket_budget=3)
    layout = layout.replaced((0,), layout.split_children(0), {0: (5, 6, 7)}, 1234)
    layout = SegmentLayout(layout.epoch, 3, layout.segments.values(), {"team": "blue"})
    again = SegmentLayout.from_metadata(json.loads(json.dumps(layout.to_metadata())))
    assert (again, again.segments[0].end_offsets) == (layout, (5, 6, 7))
    assert (again.segments[0].buckets, again.properties) == (3, {"team": "blue"})


def broken(change: Callable[[Any], object]) -> Any:
    metadata = json.loads(PIP_468)
    change(metadata)
    return metadata


@pytest.mark.parametrize(
    "metadata",
    [
        {},
        None,
        broken(lambda m: m.update(epoch="three")),
        broken(lambda m: m.update(segments=[])),
        broken(lambda m: m["segments"]["0"].update(state="OPEN")),
    ],
)
def test_metadata_of_another_form_is_refused(metadata: Any) -> None:
    with pytest.raises(InvalidInputError, match="not the metadata of a scalable topic"):
        SegmentLayout.from_metadata(metadata)


# --- names ----------------------------------------------------------------------------------


def test_a_descriptor_names_range_and_id() -> None:
    part = new_segment(12, 0x4000, 0x7FFF, 1)
    assert part.descriptor == "4000-7fff-12"
    assert parse_descriptor(part.descriptor) == (0x4000, 0x7FFF, 12)
    assert parse_descriptor("7fff-8000-3") == (0x7FFF, 0x8000, 3)
    assert parse_descriptor("0005-0005-3") == (5, 5, 3)
    with pytest.raises(InvalidInputError):
        parse_descriptor("8000-7fff-3")


@pytest.mark.parametrize(
    "text",
    [
        "0000-7fff",
        "0000-7FFF-1",
        "7fff-0000-1",
        "0000-10000-1",
        "0000-7fff-01",
        "0000-7fff-1\n",
        "0000-7fff-" + "9" * 19,
    ],
)
def test_a_descriptor_of_another_form_is_refused(text: str) -> None:
    with pytest.raises(InvalidInputError, match="is not of the form hexStart-hexEnd-id"):
        parse_descriptor(text)


def test_kafkas_names_are_legal_short_enough_and_differ_by_incarnation() -> None:
    part = new_segment(1, 0, 0x7FFF, 2)
    long = f"public/default/{'=' * 255}"
    prefix = "p" * 200  # the longest that a node takes for its topics
    first, second = (kafka_topic(prefix, long, number, part) for number in (41, 10**13))
    assert first != second
    for name in (first, second, kafka_group(prefix, long, "s" * 255, 10**13)):
        assert len(name) <= 249
        assert "=" not in name
        assert "/" not in name
    assert first.endswith(".41")
    assert second.endswith(".10000000000000")


def test_kafkas_names_say_what_they_are_of_and_what_kafka_does_not_take_is_replaced() -> None:
    topic = kafka_topic("anabranch.", "public/default/a=b", 42, new_segment(1, 0, 0x7FFF, 2))
    assert topic == "anabranch.segment.public.default.a_b.0000-7fff-1.42"
    group = kafka_group("anabranch.", "public/default/orders", "a=b", 57)
    assert group == "anabranch.subscription.public.default.orders.a_b.57"
