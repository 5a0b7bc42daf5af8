"""Whoever applies differences, from whatever generation, has the list itself."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from anabranch.core.topic_lists.sorted_names import SortedNames, names_of, topics_hash
from anabranch.core.topic_lists.topic_list import TopicList

_STEPS = st.lists(
    st.tuples(st.sampled_from("abcdef"), st.booleans(), st.sampled_from((None, 0, 1, 2)))
)


@given(_STEPS)
def test_differences_applied_whenever_a_watcher_reads_end_in_the_list(
    steps: list[tuple[str, bool, int | None]],
) -> None:
    topics = TopicList()
    watchers: list[tuple[set[str], int]] = [(set(), 0)] * 3
    for name, present, reader in [*steps, *(("a", True, number) for number in range(3))]:
        topics.note(name, present)
        if reader is None:
            continue
        known, generation = watchers[reader]
        told = topics.since(generation)
        assert told is not None
        assert set(told.removed) <= known
        known = (known - set(told.removed)) | set(told.added)
        assert told.topics_hash == topics_hash(known) == topics.topics_hash
        watchers[reader] = (known, told.generation)
    assert all(known == set(topics.names) for known, _ in watchers)


@given(st.lists(st.tuples(st.integers(0, 3_000), st.booleans()), max_size=60))
def test_sorted_names_are_a_sorted_set_however_they_are_cut(steps: list[tuple[int, bool]]) -> None:
    model = {f"t{number:05d}" for number in range(0, 3_000, 2)}
    names = SortedNames(model)
    for number, present in steps:
        name = f"t{number:05d}"
        assert (names.add(name) if present else names.discard(name)) is (present != (name in model))
        (model.add if present else model.discard)(name)
    assert list(names) == sorted(model)
    assert (len(names), names.names_bytes) == (len(model), 6 * len(model))
    for low, count in (("t00100", 5), ("", 1), ("t", 1_025), ("t01500", 9_999), ("u", 3)):
        found = [name for piece in names.pieces_after(low, count) for name in names_of(piece)]
        assert found == sorted(name for name in model if name > low)[:count]
