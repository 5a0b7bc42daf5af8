"""What is wrong with a layout, in words: each fault by itself, at its edge, and only once."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from anabranch.core.topics.layout import SegmentLayout
from anabranch.core.topics.segment import SegmentInfo, SegmentState
from anabranch.core.topics.topic import ScalableTopic
from anabranch.spark_replay.audit.checks.topics.layouts import Layouts
from support.local_audit import told
from support.topic_history import ORDERS, topic_of, topical, with_part


@pytest.fixture(scope="module")
def sound() -> ScalableTopic:
    """Has active and sealed segments, splits and merges."""
    return topic_of(topical(), ORDERS)


def faults(*steps: ScalableTopic | None) -> list[tuple[int, str]]:
    check = Layouts()
    for offset, topic in enumerate(steps, 5):
        check.changed(offset, "t", topic)
    assert check.tally.examined == len(steps)
    return told(check.tally)


def by_id(topic: ScalableTopic) -> dict[int, SegmentInfo]:
    return {part.segment_id: part for part in topic.segments}


def active(topic: ScalableTopic) -> list[SegmentInfo]:
    return sorted((p for p in topic.segments if p.is_active), key=lambda part: part.start)


def test_a_sound_layout_has_no_fault_and_a_deleted_topic_none_either(sound: ScalableTopic) -> None:
    assert faults(sound, None, sound) == []


def test_a_fault_is_told_once_until_it_is_mended(sound: ScalableTopic) -> None:
    first = active(sound)[0]
    broken = with_part(first.segment_id, end=first.end - 1)(sound)
    text = f"t: no active segment covers {first.end:04x}-{first.end:04x}"
    assert faults(broken, broken, broken, sound, broken) == [(5, text), (9, text)]


def test_what_no_segment_covers_is_told_at_each_end(sound: ScalableTopic) -> None:
    parts = active(sound)
    begins = with_part(parts[0].segment_id, start=1)(sound)
    assert faults(begins) == [(5, "t: no active segment covers 0000-0000")]
    ends = with_part(parts[-1].segment_id, end=0xFFFE)(sound)
    assert faults(ends) == [(5, "t: no active segment covers ffff-ffff")]
    nothing = replace(sound, segments=(), next_segment_id=0)
    assert faults(nothing) == [(5, "t: no active segment covers 0000-ffff")]


def test_what_two_segments_cover_is_told(sound: ScalableTopic) -> None:
    first, second = active(sound)[:2]
    (found,) = faults(with_part(second.segment_id, start=second.start - 1)(sound))
    assert found[1].startswith(f"t: more than one active segment covers {first.end:04x}: ")


def test_a_range_that_ends_before_it_begins_is_told() -> None:
    part = SegmentLayout.initial(1, 1).active[0]
    inverted = replace(part, segment_id=1, start=5, end=4)
    before = replace(part, end=4)
    found = faults(replace(topic_of(topical(), ORDERS), segments=(before, inverted)))
    assert "more than one active segment covers 0005" in found[0][1]


def test_a_segment_may_cover_a_single_hash(sound: ScalableTopic) -> None:
    part = SegmentLayout.initial(1, 1).active[0]
    first = replace(part, end=0)
    assert faults(replace(sound, segments=(first, replace(part, segment_id=1, start=1)))) == []


def test_the_next_id_is_above_all_others(sound: ScalableTopic) -> None:
    newest = max(by_id(sound))
    assert faults(replace(sound, next_segment_id=newest + 1)) == []
    assert faults(replace(sound, next_segment_id=newest)) == [
        (5, f"t: segment {newest} exists, but {newest} is the next id")
    ]


def test_two_segments_of_one_id_are_told(sound: ScalableTopic) -> None:
    twice = replace(sound, segments=(*sound.segments, sound.segments[0]))
    assert faults(twice) == [(5, "t: two segments have the same id")]


def test_parents_and_children_name_each_other(sound: ScalableTopic) -> None:
    parts = by_id(sound)
    child = next(part for part in sound.segments if part.parent_ids and part.parent_ids[0] in parts)
    parent = parts[child.parent_ids[0]]
    orphaned = with_part(child.segment_id, parent_ids=())(sound)
    assert any("which does not name it as parent" in text for _, text in faults(orphaned))
    (found,) = faults(with_part(parent.segment_id, child_ids=())(sound))
    assert "which does not name it as child" in found[1] or "nothing took its place" in found[1]
    pruned = replace(sound, segments=tuple(p for p in sound.segments if p != parent))
    assert any("which does not name it as child" in text for _, text in faults(pruned))


def test_a_child_is_younger_than_its_parents_and_only_sealed_segments_have_any() -> None:
    part = SegmentLayout.initial(1, 1).active[0]
    topic = topic_of(topical(), ORDERS)

    def of(*segments: SegmentInfo) -> ScalableTopic:
        return replace(topic, segments=segments, next_segment_id=9)

    own = replace(part, segment_id=3, parent_ids=(3,), child_ids=(3,))
    assert faults(of(own)) == [(5, "t: segment 3 descends from 3, which is not older: a cycle")]
    sealed = replace(part, segment_id=2, state=SegmentState.SEALED)
    heir = replace(part, segment_id=4)
    assert faults(of(sealed, heir)) == [(5, "t: segment 2 is sealed and nothing took its place")]
    mother = replace(part, segment_id=2, child_ids=(4,))
    younger = replace(
        part, segment_id=4, state=SegmentState.SEALED, parent_ids=(2,), child_ids=(5,)
    )
    last = replace(part, segment_id=5, state=SegmentState.SEALED, parent_ids=(4,), child_ids=())
    assert faults(of(mother, younger, last)) == [(5, "t: segment 2 is active and has children")]
