"""The turns of topics that may have messages."""

from __future__ import annotations

from collections import defaultdict

from hypothesis import given
from hypothesis import strategies as st

from anabranch.client._many.turns import TopicTurns

TOPICS = [f"t{number}" for number in range(8)]


@given(
    backlogs=st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 700), min_size=1),
    takes=st.lists(st.integers(1, 250), min_size=1, max_size=40),
)
def test_between_two_turns_of_a_topic_each_other_one_with_messages_has_one(
    backlogs: dict[str, int], takes: list[int]
) -> None:
    quantum = 100
    turns = TopicTurns(quantum)
    for topic in backlogs:
        turns.ready(topic)
    given_out: dict[str, int] = defaultdict(int)
    for most in takes:
        left = most
        while left and turns:
            topic, quota = turns.next()
            count = min(left, quota, backlogs[topic])
            assert count <= quantum
            backlogs[topic] -= count
            given_out[topic] += count
            left -= count
            turns.took(topic, count)
        waiting = [given_out[topic] for topic, rest in backlogs.items() if rest]
        if waiting:  # nobody that waits is more than a turn behind anybody
            assert max(given_out.values()) - min(waiting) <= quantum
    while turns:
        topic, quota = turns.next()
        count = min(quota, backlogs[topic])
        backlogs[topic] -= count
        turns.took(topic, count)
    assert set(backlogs.values()) == {0}
