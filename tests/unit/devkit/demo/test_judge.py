"""The judge must find every message that is lost, repeated or out of order, and accuse no other."""

from __future__ import annotations

from anabranch.devkit.causality import Span
from anabranch.devkit.demo.judge import Arrival, Findings, TraceMessage, check

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
    assert (found.sent, found.arrived) == (5, 5)
    assert found.lines() == ["5 of 5: 0 lost, 0 twice, 0 never sent, 0 out of their key's order"]


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


def test_a_run_that_sent_nothing_shows_nothing() -> None:
    assert not check([], [], {}).sound
