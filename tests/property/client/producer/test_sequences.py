"""The numbers of a producer with a name: each is stored once, whoever dies and whatever changes."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.client import DuplicatesUnknownError, TopicLayout
from anabranch.client._producer import sequences
from anabranch.client._producer.sequences import Milestone, Place, Sequences, Stored
from anabranch.core.entities.layout import SegmentLayout
from anabranch.core.errors import InvalidInputError
from support.numbered_world import run, wanted
from support.still_watch import layout_of

_read = sequences.read_milestone
_LEFT = re.compile("left$")
_WHO = "producer orders-db of topic://public/default/orders"


@given(seed=st.integers(0, 2**32 - 1), steps=st.integers(0, 400))
def test_each_number_is_stored_once_over_deaths_splits_and_merges(seed: int, steps: int) -> None:
    assert run(seed, steps) == wanted()


def _highest_seen(numbers: Sequences, sequence: int) -> bool:
    return sequence <= max(numbers.milestone.settled, numbers._stored_max)


def _without_descendants(milestone: Milestone, _: TopicLayout, __: str) -> dict[Place, int]:
    return dict(milestone.ends)


def _one_too_high(numbers: Sequences, ends: Mapping[Place, int]) -> None:
    numbers._marked = Milestone(numbers.milestone.number + 1, numbers._last + 1, ends)


def _too_early(numbers: Sequences) -> Milestone | None:
    return numbers._marked


def _closed(commits: Mapping[tuple[str, int], tuple[int, str]], *rest: object) -> Milestone | None:
    left = {place: (at, _LEFT.sub("closed", text)) for place, (at, text) in commits.items()}
    return _read(left, *rest)  # type: ignore[arg-type]


def _though_some_are_stored(numbers: Sequences, ends: Mapping[Place, int]) -> None:
    numbers._marked = Milestone(numbers.milestone.number + 1, max(numbers._last, 0), ends)


@pytest.mark.parametrize(
    ("owner", "name", "bug"),
    [
        (Sequences, "is_stored", _highest_seen),
        (sequences, "starts", _without_descendants),
        (Sequences, "mark", _one_too_high),
        (Sequences, "due", _too_early),
        (Sequences, "mark", _though_some_are_stored),
        (sequences, "read_milestone", _closed),
    ],
)
def test_the_world_finds_a_planted_bug(
    monkeypatch: pytest.MonkeyPatch, owner: object, name: str, bug: object
) -> None:
    monkeypatch.setattr(owner, name, bug)
    assert any(run(seed) != wanted() for seed in range(200))


def _committed(layout: TopicLayout, milestone: Milestone) -> dict[tuple[str, int], tuple[int, str]]:
    return dict(milestone.commits(layout, 1))


@given(
    ends=st.lists(st.integers(0, 2**62), min_size=8, max_size=8),
    settled=st.integers(-1, sequences.SEQUENCE_MAX),
    gone=st.integers(0, 7),
    text=st.sampled_from(("", "abn1", "abn1 x 8 1 1 1", "mine", "abn2 9 1 1 1 1")),
)
def test_a_milestone_is_read_whole_or_not_at_all(
    ends: list[int], settled: int, gone: int, text: str
) -> None:
    layout = layout_of(SegmentLayout.initial(2, 8), version=7)
    milestone = Milestone(3, settled, dict(zip(sequences.open_places(layout), ends, strict=True)))
    commits = _committed(layout, milestone)
    assert sequences.read_milestone(commits, layout, _WHO) == milestone
    assert sequences.version_of(commits) == 7
    older = {place: (0, said.replace("abn1 3", "abn1 2")) for place, (_, said) in commits.items()}
    lost = sorted(commits)[gone]
    for there in ({}, {lost: (5, text)}, {lost: older[lost]}):
        with pytest.raises(DuplicatesUnknownError, match="begin under a new name"):
            sequences.read_milestone(
                {**{p: c for p, c in commits.items() if p != lost}, **there}, layout, _WHO
            )


def test_a_pruned_segment_or_a_new_one_of_unknown_origin_is_no_guess() -> None:
    plain = SegmentLayout.initial(1, 4)
    before = layout_of(plain, version=1)
    milestone = Milestone(1, 5, dict.fromkeys(sequences.open_places(before), 2))
    split = plain.replaced((0,), plain.split_children(0), {0: (9, 9, 9, 9)}, 0)
    begins = sequences.starts(milestone, layout_of(split), _WHO)
    assert begins == {
        **dict.fromkeys([(0, bucket) for bucket in range(4)], 2),
        **dict.fromkeys([(part, bucket) for part in (1, 2) for bucket in range(2)], 0),
    }
    pruned = layout_of(split.prune_segment(0))
    with pytest.raises(DuplicatesUnknownError, match="segment 0 was pruned"):
        sequences.starts(milestone, pruned, _WHO)
    with pytest.raises(DuplicatesUnknownError, match="is gone"):
        sequences.read_milestone(_committed(before, milestone), pruned, _WHO)
    with pytest.raises(DuplicatesUnknownError, match="new_name=True"):
        sequences.beginning(pruned, _WHO)


def test_who_has_left_is_told_by_the_newest_milestone_alone() -> None:
    layout = layout_of(SegmentLayout.initial(2, 4), version=1)
    old = Milestone(1, 5, dict.fromkeys(sequences.open_places(layout), 0))
    new = Milestone(2, 9, {(1, 0): 0, (1, 1): 0})
    assert sequences.is_free({})
    assert not sequences.is_free(old.commits(layout, 7))
    for state in (sequences.LEFT, sequences.CLOSED):
        commits = {**old.commits(layout, 7), **new.commits(layout, state)}
        assert sequences.is_free(commits)
        assert not sequences.is_free({**commits, **new.commits(layout, 7, is_whole=False)})


def test_of_what_was_closed_a_part_is_enough() -> None:
    layout = layout_of(SegmentLayout.initial(2, 4), version=1)
    ends = dict.fromkeys(sequences.open_places(layout), 4)
    closed = dict(Milestone(3, 9, ends).commits(layout, sequences.CLOSED))
    closed.popitem()
    assert sequences.read_milestone(closed, layout, _WHO) == Milestone(3, 9, {}, is_last=True)
    left = dict(Milestone(3, 9, ends).commits(layout, sequences.LEFT))
    assert sequences.read_milestone(left, layout, _WHO) == Milestone(3, 9, ends)
    left.popitem()
    with pytest.raises(DuplicatesUnknownError):
        sequences.read_milestone(left, layout, _WHO)


@given(sequence=st.integers(0, sequences.SEQUENCE_MAX), name=st.integers(0, 2**64 - 1))
def test_a_header_tells_its_own_name_its_number_and_others_nothing(
    sequence: int, name: int
) -> None:
    made = sequences.header(name, sequence)
    assert sequences.sequence_of([("x", b""), made], name) == sequence
    assert sequences.sequence_of([made], name ^ 1) is None
    assert sequences.sequence_of([("ab", None), ("ab", b"strange"), ("a", made[1])], name) is None


@pytest.mark.parametrize("given_", [None, "7", 1.0, True, 4, -1, 2**63])
def test_a_number_that_does_not_ascend_is_refused(given_: object) -> None:
    numbers = Sequences(Milestone(0, 2, {}), {5: Stored(0, 0, 1)})
    numbers.send(4)
    assert numbers.checked(5) == 5
    with pytest.raises(InvalidInputError, match="sequence"):
        numbers.checked(given_)


def test_ninety_is_sent_where_the_child_of_a_merge_has_a_hundred_and_twenty_before_it() -> None:
    plain = SegmentLayout.initial(2, 2)
    merged = plain.replaced((0, 1), plain.merge_children(0, 1), {0: (3,), 1: (4,)}, 0)
    milestone = Milestone(1, 80, {(0, 0): 3, (1, 0): 4})
    begins = sequences.starts(milestone, layout_of(merged), _WHO)
    assert begins == {(0, 0): 3, (1, 0): 4, (2, 0): 0, (2, 1): 0}
    numbers = Sequences(milestone, {120: Stored(2, 0, 0)})
    assert [numbers.is_stored(each) for each in (80, 90, 120, 121)] == [True, False, True, False]
