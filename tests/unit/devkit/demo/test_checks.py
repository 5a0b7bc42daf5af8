"""The demo must not call a wrong look-up right, nor the other way round."""

import random

import pytest

from anabranch.core.names import Namespace
from anabranch.core.ring import bundle_name, even_ranges
from anabranch.core.topics.layout import SegmentLayout
from anabranch.devkit.demo.history import LAG_MS_MAX
from anabranch.devkit.demo.history import History as Checked
from anabranch.devkit.demo.lookups import LookupSample
from anabranch.devkit.demo.reshape import choose
from anabranch.devkit.demo.trace import NAMESPACES, home_of, load
from support.history import BROKERS, DEFAULT, History

TOPIC = f"persistent://{DEFAULT}/topic-1"
UNIT = bundle_name(Namespace(DEFAULT), even_ranges(4)[0])
FIRST, SECOND = BROKERS[:2]


def owned() -> History:
    history = History()
    history.found()
    history.assign(UNIT, FIRST)
    history.wait(60_000)
    return history


def checked(history: History) -> Checked:
    found = Checked()
    for folded in history.folded:
        found.take(folded)
    return found


def looked_up(broker: str, at_ms: float) -> LookupSample:
    return LookupSample(TOPIC, DEFAULT, broker, at_ms, at_ms + 2, stale=False)


def test_an_answer_that_names_the_owner_is_right_and_any_other_is_wrong() -> None:
    history = owned()
    right, wrong = looked_up(FIRST, history.now_ms), looked_up(SECOND, history.now_ms)
    assert checked(history).wrong([right, wrong]) == [wrong]


def test_a_former_owner_may_be_named_for_as_long_as_a_view_may_lag() -> None:
    history = owned()
    history.transfer(UNIT, SECOND)
    at_ms = history.now_ms
    history.wait(60_000)
    just_after = looked_up(FIRST, at_ms + LAG_MS_MAX / 2)
    long_after = looked_up(FIRST, at_ms + 2 * LAG_MS_MAX)
    too_early = looked_up(SECOND, at_ms - 30_000)
    answers = [just_after, long_after, too_early]
    assert checked(history).wrong(answers) == [long_after, too_early]


def test_a_hand_over_counts_from_release_to_the_next_owner() -> None:
    history = owned()
    history.transfer(UNIT, SECOND)
    assert checked(history).hand_overs_ms == [2 * history.step_ms]


def test_a_fail_over_counts_from_the_kill_to_the_next_holder() -> None:
    history = owned()
    killed_ms = history.now_ms
    # The first broker leads, so that another one takes its lead and its bundle.
    history.fail(FIRST, by=SECOND)
    waits = checked(history).taken_over_ms(FIRST, killed_ms)
    assert len(waits) == 1
    assert waits[0] > 6_000
    assert checked(history).taken_over_ms(SECOND, killed_ms) == []


def test_the_trace_keeps_its_order_its_span_and_spreads_over_all_namespaces() -> None:
    events = load(90)
    assert len(events) == 6_000
    assert [event.at_s for event in events] == sorted(event.at_s for event in events)
    assert (events[0].at_s, round(events[-1].at_s, 6)) == (0.0, 90.0)
    assert {event.namespace for event in events} == set(NAMESPACES)
    assert home_of("nova") != home_of("nova-specs")


@pytest.mark.parametrize("seed", range(4))
def test_every_change_of_segments_that_is_chosen_is_one_that_the_layout_allows(seed: int) -> None:
    dice = random.Random(seed)
    layout = SegmentLayout.initial(2)
    kinds = set()
    for _ in range(40):
        change = choose(layout, dice)
        kinds.add(change.kind)
        match change.kind:
            case "split":
                layout = layout.split_segment(*change.segments)
            case "merge":
                layout = layout.merge_segments(*change.segments)
            case _:
                buckets = int(change.path.rpartition("=")[2])
                layout = layout.rebucket_segment(change.segments[0], buckets)
        assert 1 <= len(layout.active) <= 8
    assert kinds == {"split", "merge", "rebucket"}
