"""The demo must not call a wrong look-up right, nor the other way round."""

from __future__ import annotations

import random
from itertools import pairwise

import msgspec
import pytest

from anabranch.broker.settings import load_settings
from anabranch.core.autoscale.policy import AutoScalePolicy, checked_override, fault_of, resolve
from anabranch.core.balance.history import AutomaticMove
from anabranch.core.names import Namespace
from anabranch.core.ring import bundle_name, even_ranges
from anabranch.core.topics.layout import SegmentLayout
from anabranch.devkit.causality import Span
from anabranch.devkit.demo import load_wave
from anabranch.devkit.demo.history import LAG_MS_MAX
from anabranch.devkit.demo.history import History as Checked
from anabranch.devkit.demo.load_wave import SETTINGS
from anabranch.devkit.demo.lookups import LookupSample
from anabranch.devkit.demo.messages import Arrival, Findings, TraceMessage, check
from anabranch.devkit.demo.messages import Checked as CheckedMessages
from anabranch.devkit.demo.relief import RELIEF_SETTINGS, told
from anabranch.devkit.demo.reshape import choose
from anabranch.devkit.demo.trace import NAMESPACES, home_of, load
from anabranch.devkit.hot_broker import TARGET
from anabranch.devkit.steady_messages import MessageLedger
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


# --- the demo's hot broker: the settings that it needs, what it says, and what it takes for wrong


_MOVE = AutomaticMove(7, 1_000, "RELEASE", "t/n/0x0", "b2:1", "OVERLOADED", 0.384, 0.309, None)
_KEYS = ("north", "east", "south", "west")
_ALL = [0, 1, 2, 3, 4, 5, 6, 7]


def test_nodes_take_the_settings_by_which_it_is_the_processor_alone_that_moves_bundles() -> None:
    named = dict(each.split("=", 1) for each in (*SETTINGS, *RELIEF_SETTINGS))
    balance = load_settings(None, {}, named).balance
    assert list(balance.weights) == [1.0, 0.0, 0.0, 0.0, 0.0]
    assert balance.broker_load_target_std == TARGET
    assert balance.shedding_excluded_namespaces == tuple(NAMESPACES)


def test_a_move_is_told_with_its_reason_and_what_it_rests_on() -> None:
    assert told(_MOVE) == (
        "t/n/0x0 to b2:1, because OVERLOADED (deviation 0.38, expected after it 0.31)"
    )
    unknown = msgspec.structs.replace(_MOVE, predicted=None)
    assert told(unknown) == "t/n/0x0 to b2:1, because OVERLOADED"


@pytest.mark.parametrize(
    ("order", "wrong"),
    [
        (_ALL, []),
        ([1, 0, 3, 2, 5, 4, 7, 6], []),  # keys among each other have no order
        ([0, 1, 2, 3, 4, 5, 6], ["west: [] came in place of [7]"]),
        ([0, 1, 2, 3, 4, 5, 6, 7, 4], ["north: [4] came in place of []"]),
        ([0, 1, 6, 3, 4, 5, 2, 7], ["south: [6, 2] came in place of [2, 6]"]),
    ],
)
def test_what_is_lost_repeated_or_turned_is_wrong(order: list[int], wrong: list[str]) -> None:
    ledger = MessageLedger()
    ledger.due += [float(number) for number in _ALL]
    for number in order:
        ledger.take(_KEYS[number % len(_KEYS)], number, number + 0.5)
    assert ledger.wrong() == wrong
    assert ledger.is_complete is (set(order) == set(_ALL))


def test_a_message_is_late_by_what_passed_since_it_was_due() -> None:
    ledger = MessageLedger()
    ledger.due += [10.0, 11.0, 12.0]
    ledger.take("north", 0, 10.25)
    ledger.take("east", 1, 11.5)
    assert ledger.late_ms(10.5, 12.0) == [500.0]
    ledger.failed.append("not sent: refused")
    assert ledger.is_complete
    assert ledger.wrong()[0] == "not sent: refused"


# --- the load of the demo that rises and falls ----------------------------------------------------


def test_the_tide_rises_above_the_policys_thresholds_and_falls_below_them() -> None:
    rates = [load_wave.rate_at(step / 100) for step in range(101)]
    policy = resolve(AutoScalePolicy(), {}, checked_override(load_wave.POLICY)).policy
    assert fault_of(policy) == ""
    assert max(rates) > policy.split_msg_rate_in_threshold * 4
    assert rates[0] == rates[-1] < policy.merge_msg_rate_in_threshold


def test_the_events_keep_their_order_and_go_round_as_often_as_the_tide_needs() -> None:
    events = load(75.0)
    found = load_wave.wave_events(events, 75.0)
    assert [each.topic for each in found[: len(events)]] == [each.topic for each in events]
    assert found[len(events)].topic == events[0].topic
    assert all(one.at_s <= other.at_s for one, other in pairwise(found))
    assert abs(sum(0.42 <= each.at_s / 75 < 0.48 for each in found) - 300 * 0.06 * 75) < 30


def test_it_has_turned_when_it_scaled_out_and_in_again() -> None:
    wave = load_wave.LoadWave("a/b/c", [], lambda _: None)
    assert not wave.has_turned
    for segments, turned in ((1, False), (2, False), (4, False), (3, True)):
        wave.samples.append(load_wave.Sample(len(wave.samples), 1.0, segments, 1))
        assert wave.has_turned is turned
    wave.decisions = {
        load_wave.ScalingDecision(2, "merge 1 2", "cold"),
        load_wave.ScalingDecision(1, "split 0", "hot"),
        load_wave.ScalingDecision(3, "none", ""),
    }
    assert [each.action for each in wave.acted] == ["split 0", "merge 1 2"]


# --- the demo must find every message that is lost, repeated or out of order, and accuse no other


A0, A1, A2 = (TraceMessage(number, "a", turn) for turn, number in enumerate((0, 2, 4)))
B0, B1 = (TraceMessage(number, "b", turn) for turn, number in enumerate((1, 3)))
SENT = [A0, B0, A1, B1, A2]
# Each was acknowledged before the next one was sent.
SPANS = {each.number: Span(2 * each.number, 2 * each.number + 1) for each in SENT}


def arrive(*messages: TraceMessage, by: str = "one") -> list[Arrival]:
    return [Arrival(message, by, 0, 0, offset) for offset, message in enumerate(messages)]


def counts(found: Findings) -> tuple[int, int, int, int]:
    return len(found.lost), len(found.repeated), len(found.disordered), len(found.foreign)


def test_everything_once_and_each_key_in_order_is_sound_however_keys_mix() -> None:
    found = check(SENT, arrive(B0, B1, A0, A1, A2), SPANS)
    assert found.sound
    assert (found.sent, found.arrived, found.keys) == (5, 5, 2)
    assert found.lines() == [
        "5 sent with 2 keys, 5 arrived: 0 lost, 0 twice, 0 out of their key's order, 0 never sent"
    ]


def test_a_message_that_does_not_arrive_is_lost() -> None:
    found = check(SENT, arrive(A0, B0, A1, A2), SPANS)
    assert counts(found) == (1, 0, 0, 0)
    assert found.lost == ("message 3 (turn 1 of b) did not arrive",)
    assert not found.sound


def test_a_message_that_arrives_again_is_repeated_and_not_out_of_order_too() -> None:
    found = check(SENT, [*arrive(A0, B0, A1, B1, A2), *arrive(A0, by="two")], SPANS)
    assert counts(found) == (0, 1, 0, 0)
    assert found.repeated == (
        "message 0 (turn 0 of a) arrived at one from 0/0@0 and at two from 0/0@0",
    )
    assert not found.sound


def test_a_message_before_one_that_was_acknowledged_when_it_was_sent_is_out_of_order() -> None:
    found = check(SENT, arrive(A0, B0, A2, B1, A1), SPANS)
    assert counts(found) == (0, 0, 1, 0)
    assert "turn 2 of a" in found.disordered[0]
    assert "before message 2 (turn 1 of a)" in found.disordered[0]
    assert not found.sound


def test_messages_of_a_key_that_were_under_way_together_may_come_either_way() -> None:
    spans = {**SPANS, A1.number: Span(4, 100)}
    assert check(SENT, arrive(A0, B0, A2, B1, A1), spans).sound


def test_a_queue_promises_no_order() -> None:
    found = check(SENT, arrive(A2, A1, B1, B0, A0), None)
    assert found.sound
    assert "order" not in found.lines()[0]


def test_what_was_not_sent_or_arrives_altered_is_foreign() -> None:
    stranger, altered = TraceMessage(9, "a", 3), TraceMessage(3, "c", 0)
    found = check(SENT, arrive(A0, B0, A1, altered, A2, stranger), SPANS)
    assert counts(found) == (0, 0, 0, 2)
    assert not found.sound
    assert len(found.lines()) == 3


def test_a_run_is_sound_only_if_every_check_is_and_messages_were_sent() -> None:
    good, bad = check(SENT, arrive(A0, B0, A1, B1, A2), SPANS), check(SENT, arrive(A0), SPANS)
    checks = {"readers": good, "workers": good}
    assert CheckedMessages(checks, ()).sound
    for name in checks:
        assert not CheckedMessages({**checks, name: bad}, ()).sound
    assert not CheckedMessages(checks, ("message 7 of a: refused",)).sound
    assert not CheckedMessages({"readers": check([], [], {})}, ()).sound
