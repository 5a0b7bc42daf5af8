"""A position with gaps, against a model that knows nothing but which offsets are done."""

from __future__ import annotations

import itertools
import random

from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.client._consumer.gaps import GAP_MAX, SPAN_MAX, Done, Gaps, read, written
from anabranch.core.subscriptions.known_positions import mark_of, parts_of

GROUP, PLACE = "anabranch.subscription.a.b.c.d.9223372036854775807", ("segment", 7)
METADATA_MAX = 4_096  # of Kafka's brokers, by default
WHOLE = 2**62


def text_of(gaps: Gaps) -> str:
    return written(gaps, GROUP, PLACE)


def decoded(gaps: Gaps) -> list[tuple[int, int]]:
    text = text_of(gaps)
    metadata = f"{mark_of(2**63 - 1)} {text}" if text else mark_of(2**63 - 1)
    assert len(metadata) <= METADATA_MAX
    mark, found = parts_of(metadata)
    assert (mark, found) == (mark_of(2**63 - 1), text)
    if not text:
        return []
    done = read(text, GROUP, PLACE, gaps.watermark, WHOLE)
    assert done is not None
    assert (done.lives, done.suspect) == (gaps.lives.said, gaps.lives.suspect)
    return done.runs


def offsets_of(gaps: Gaps) -> set[int]:
    return {offset for start, end in gaps.runs for offset in range(start, end)}


@given(st.integers(), st.integers(0, 40), st.lists(st.booleans(), max_size=60))
def test_watermark_and_map_are_what_a_set_of_done_offsets_says(
    seed: int, first: int, exist: list[bool]
) -> None:
    """`exist`: Kafka has no message at some offsets, as behind a transaction."""
    rng, gaps = random.Random(seed), Gaps(first)
    messages = [first + at for at, there in enumerate(exist) if there]
    starts: dict[int, int] = {}
    done, queued = set(range(first)), list(messages)
    while queued or gaps.running:
        if rng.random() < 0.05:  # the bucket goes, and comes back
            queued = [offset for offset in messages if offset >= gaps.rewind()]
            if not queued:
                gaps.reach(first + len(exist))
        elif queued and (not gaps.running or rng.random() < 0.5):
            offset = queued.pop(0)
            start = gaps.take(offset)
            if gaps.is_known(offset):
                gaps.skip(start, offset)
                done.update(range(start, offset + (offset not in gaps.running)))
            else:
                starts[offset] = start
                gaps.start(offset)
            if not queued:
                gaps.reach(first + len(exist))
        else:
            offset = rng.choice(sorted(gaps.running))
            gaps.finish(starts[offset], offset)
            done.update(range(starts[offset], offset + 1))
        if not queued and not gaps.running and done >= set(messages):
            done.update(range(first + len(exist)))  # what was reached behind them
        watermark = next(at for at in itertools.count() if at not in done)
        assert gaps.watermark == watermark
        assert offsets_of(gaps) == {at for at in done if at > watermark}
        assert list(decoded(gaps)) == list(gaps.runs)
        for offset in range(first + len(exist)):
            assert gaps.is_known(offset) == (offset in done or offset in gaps.running)
    gaps.reach(first + len(exist))
    assert (gaps.watermark, list(gaps.runs)) == (first + len(exist), [])


@settings(deadline=None, max_examples=20)
@given(st.integers(), st.sampled_from([1, 2, 3, 50]))
def test_whatever_was_admitted_ends_in_a_map_that_fits(seed: int, width: int) -> None:
    """An adversary ends the messages in the order that makes most runs; one never ends."""
    rng, gaps = random.Random(seed), Gaps(5)
    started = [offset for offset in range(5, 5 + SPAN_MAX * 2, width) if _begun(gaps, offset)]
    for parity in rng.sample((0, 1), 2):
        for offset in started[1:]:
            if offset // width % 2 == parity and offset in gaps.running:
                gaps.finish(offset, offset)
                if rng.random() < 0.001:
                    decoded(gaps)
        assert decoded(gaps) == list(gaps.runs)
    assert gaps.watermark == started[0]


def test_a_part_without_messages_takes_in_what_is_done_in_it() -> None:
    """Kafka's retention removes messages, some of which a map names."""
    gaps = Gaps(0, [(3, 5), (7, 9)])
    gaps.reach(4)
    assert (gaps.watermark, decoded(gaps)) == (5, [(7, 9)])
    gaps.reach(8)
    assert (gaps.watermark, decoded(gaps), gaps.read_end) == (9, [], 8)


def _begun(gaps: Gaps, offset: int) -> bool:
    if not gaps.admits(offset, offset):
        return False
    gaps.start(offset)
    return True


def test_a_slow_message_holds_up_others_only_after_very_many() -> None:
    gaps = Gaps(0)
    gaps.start(0)
    for offset in range(1, GAP_MAX):
        assert gaps.admits(offset, offset)
        gaps.start(offset)
        gaps.finish(offset, offset)
    assert not gaps.admits(GAP_MAX, GAP_MAX)
    assert len(text_of(gaps)) < 64
    gaps.finish(0, 0)
    assert (gaps.watermark, gaps.admits(GAP_MAX, GAP_MAX)) == (GAP_MAX, True)


def test_what_begins_at_the_watermark_may_start_behind_any_hole() -> None:
    gaps = Gaps(7)
    start = gaps.take(7 + 2 * GAP_MAX)
    assert gaps.admits(start, 7 + 2 * GAP_MAX)
    gaps.start(7 + 2 * GAP_MAX)
    gaps.finish(start, 7 + 2 * GAP_MAX)
    assert gaps.watermark == 8 + 2 * GAP_MAX


def test_what_is_read_once_more_after_a_restart_is_known_if_it_was_done() -> None:
    gaps = Gaps(10)
    for offset in (10, 11, 12, 13):
        gaps.start(offset)
    gaps.finish(12, 12)
    later = Gaps(10, decoded(gaps))
    assert [later.is_known(offset) for offset in range(9, 15)] == [True, False, False, True] + [
        False
    ] * 2
    assert later.rewind() == 10
    later.skip(later.take(12), 12)
    later.start(10)
    later.finish(10, 10)
    assert (later.watermark, list(later.runs)) == (13, [])


@given(st.sets(st.integers(1, 300), min_size=1), st.integers(0, 2_000), st.integers(0, 7))
def test_a_damaged_map_is_none(done: set[int], where: int, bit: int) -> None:
    gaps = Gaps(0, [(each, each + 1) for each in sorted(done)])
    text = text_of(gaps)
    at = where % len(text)
    damaged = text[:at] + chr(ord(text[at]) ^ 1 << bit) + text[at + 1 :]
    assert read(damaged, GROUP, PLACE, 0, WHOLE) in (None, Done(list(gaps.runs)))
    assert read(text[:at], GROUP, PLACE, 0, WHOLE) is None


def test_a_map_of_another_commit_is_none() -> None:
    gaps = Gaps(3, [(5, 9)])
    text = text_of(gaps)
    assert read(text, GROUP, PLACE, 3, 9) == Done([(5, 9)])
    assert read(text, GROUP, PLACE, 3, 8) is None, "Kafka has lost what it was made of"
    assert read(text, GROUP, PLACE, 4, 9) is None
    assert read(text, GROUP, ("segment", 8), 3, 9) is None
    assert read(text, "another", PLACE, 3, 9) is None
    for other in ("", "ab1", "ab1AA==", "AAIAAAAB", "anabranch"):
        assert read(other, GROUP, PLACE, 3, 9) is None


@given(st.sets(st.integers(1, 3_000), min_size=1), st.integers(0, 200))
def test_a_map_that_may_be_small_has_the_lowest_of_what_is_done(
    done: set[int], bytes_max: int
) -> None:
    gaps = Gaps(0, [(each, each + 1) for each in sorted(done)])
    gaps.bytes_max = bytes_max
    kept = decoded(gaps)
    assert kept == list(gaps.runs)[: len(kept)]
    assert len(text_of(gaps)) <= 4 * (bytes_max + 12) // 3 + 8


@given(st.integers(), st.integers(1, 12), st.integers(0, 30))
def test_what_runs_is_not_done_though_kafka_removes_it_and_the_rest_goes_on(
    seed: int, running: int, first: int
) -> None:
    """It is read once more, from the first message that Kafka has left."""
    rng = random.Random(seed)
    gaps, end = Gaps(0), 30
    starts = {offset: gaps.take(offset) for offset in range(20)}
    begun = set(rng.sample(sorted(starts), k=min(running, len(starts))))
    for offset in begun:
        gaps.start(offset)
    for offset in {each for each in begun if rng.random() < 0.5}:
        gaps.finish(starts[offset], offset)
    left = set(gaps.running)
    gaps.rewind()
    for offset in range(max(first, gaps.watermark), end):
        start = gaps.take(offset)
        if gaps.is_known(offset):
            gaps.skip(start, offset)
        else:
            gaps.start(offset)
            gaps.finish(start, offset)
    gaps.reach(end)
    assert left == gaps.running
    assert gaps.watermark <= min(left, default=end)
    assert not offsets_of(gaps) & left
    for offset in rng.sample(sorted(left), k=len(left)):
        if rng.random() < 0.5 and offset < first:
            gaps.give_up(offset)
            gaps.rewind()
            gaps.reach(end)
        else:
            gaps.finish(offset, offset)
    assert (gaps.watermark, list(gaps.runs)) == (end, [])
