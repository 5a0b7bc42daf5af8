"""One run over many topics: order in each topic, one bound and one width for all, fair turns."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.client._consumer.core import ConsumerCore
from anabranch.client._consumer.holding import Holding
from support.shared_run import SharedRun, settings

READ = 12  # messages at once


@given(st.integers())
def test_keys_keep_their_order_in_each_topic_and_blocked_ones_hold_up_no_other_bucket(
    seed: int,
) -> None:
    """Topics share keys and the bound; one comes later, one goes while its handlers run."""
    rng = random.Random(seed)
    names = [f"topic-{number}" for number in range(rng.randrange(2, 7))]
    logs = {
        name: [[rng.randrange(5) for _ in range(40)] for _ in range(rng.randrange(1, 4))]
        for name in names
    }
    most = rng.choice((6, 20, 60))
    run = SharedRun(rng, logs, settings(concurrency=rng.choice((1, 3, 8)), queued_max=most))
    for name in names[1:]:
        run.open(name)
    run.poison = {(rng.choice(names), rng.randrange(5)) for _ in range(rng.randrange(3))}
    disturbed(run, rng, 50)
    run.open(names[0])
    disturbed(run, rng, 70)
    run.leave(names.pop())
    disturbed(run, rng, 80)
    assert run.most_queued <= most + READ + run.width
    for _ in range(300):
        for name in names:
            run.read(name, READ)
        run.end_all()
        run.commit()
        run.turn(0.5)
    poisoned = {topic for topic, _ in run.poison}
    for name in names:
        of_it = [place for key, places in run.done.items() if key[0] == name for place in places]
        assert len(of_it) == len(set(of_it)), "nothing is done twice"
        for bucket, keys in enumerate(logs[name]):
            if name not in poisoned:
                assert sum(place[1] == bucket for place in of_it) == len(keys)


def disturbed(run: SharedRun, rng: random.Random, steps: int) -> None:
    """Things happen in any order."""
    for _ in range(steps):
        run.read(rng.choice(list(run.parts)), rng.randrange(1, READ))
        if run.calls and rng.random() < 0.7:
            run.end(fails=0.2)
        if rng.random() < 0.5:
            run.commit()
        run.turn(rng.choice((0.0, 0.1)))


def test_a_topic_of_blocked_keys_gives_back_what_is_more_than_its_part() -> None:
    """All that may be queued is full of what has to wait; then the others are read all the same."""
    rng = random.Random(1)
    run = SharedRun(
        rng, {"stuck": [[0] * 100], "well": [[*range(100)]]}, settings(concurrency=5, queued_max=20)
    )
    for name in run.logs:
        run.open(name)
    run.poison = {("stuck", 0)}
    run.read("stuck", 100)
    for _ in range(200):
        run.read("well", 10)
        run.end_all()
        run.commit()
        run.turn(0.1)
    assert (
        len([place for key, each in run.done.items() if key[0] == "well" for place in each]) == 100
    )
    assert run.schedule.lanes.messages <= 10 + 1
    failed = next(run.schedule.lanes.blocked())
    assert failed.failures > 2, "it is not read again, which would forget its attempts"
    run.poison = set()
    for _ in range(200):
        run.read("stuck", 10)
        run.end_all()
        run.turn(0.5)
    assert [offset for *_, offset in run.done["stuck", 0]] == list(range(100))


@given(st.integers(1, 6), st.integers(2, 6))
def test_slots_go_to_the_topics_in_turn_however_many_buckets_and_messages_each_has(
    width: int, topics: int
) -> None:
    rng = random.Random(topics)
    logs = {f"topic-{number}": [list(range(60))] * (1 + number) for number in range(topics)}
    run = SharedRun(rng, logs, settings(concurrency=width, queued_max=100_000))
    for name in logs:
        run.open(name)
        for _ in range(60):
            run.read(name, 60)
    run.turn()
    run.commit()
    run.start()
    begun = Counter(call.part.topic for call in run.calls)
    for _ in range(15 * topics):
        run.calls.insert(0, run.calls.pop(0))
        before = set(map(id, run.calls))
        run.end()
        run.start()
        begun.update(c.part.topic for c in run.calls if id(c) not in before)
    assert max(begun.values()) - min(begun[name] for name in logs) <= 1


def test_a_thousand_topics_that_wait_cost_a_message_no_look_at_all_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each waits for its first commit; a look at a bucket is a call of `may_deliver`."""
    rng = random.Random(1)
    logs = {f"topic-{number}": [[0, 1, 2]] for number in range(1_000)}
    run = SharedRun(rng, logs, settings(concurrency=10, queued_max=100_000))
    looks = 0
    look = ConsumerCore.may_deliver

    def counted(self: ConsumerCore, number: int, now: float) -> Holding | None:
        nonlocal looks
        looks += 1
        return look(self, number, now)

    for name in logs:
        run.open(name)
        run.read(name, 3)
    monkeypatch.setattr(ConsumerCore, "may_deliver", counted)
    run.turn()
    assert looks <= 1_000
    for holding, part in list(run.schedule.suspects.untold.items()):
        run.committed(part, holding)
        run.start()
        while run.calls:
            run.end()
            run.start()
    assert sum(map(len, run.done.values())) == 3_000
    assert looks <= 10_000


def test_while_one_topics_owner_is_careful_nothing_of_any_other_begins() -> None:
    rng = random.Random(1)
    logs = {"killer": [[0, 1]], "other": [[0, 1, 2]]}
    run = SharedRun(rng, logs, settings(concurrency=5))
    for name in logs:
        run.open(name)
    (holding,) = run.parts["killer"].core.holdings.values()
    gaps = holding.work_apart()
    assert gaps is not None
    gaps.lives.before = 2
    run.read("killer", 2)
    run.turn()
    run.read("other", 3)
    run.turn()
    assert run.calls == []
    for _ in range(2):
        for _ in range(2):  # the one before is not named any more, then this one is
            run.commit()
            run.turn()
        assert [call.part.topic for call in run.calls] == ["killer"]
        run.end()
        run.turn()
        assert run.calls == [], "its commit names it yet"
    run.commit()
    run.turn()
    run.commit()
    run.turn()
    assert [call.part.topic for call in run.calls] == ["other"] * 3


@given(st.integers(), st.integers(1, 6))
def test_a_topic_that_comes_has_room_for_its_first_messages_beside_any_backlog(
    seed: int, before: int
) -> None:
    """Else it would wait until what others have queued is worked off."""
    logs = {f"topic-{number}": [list(range(500))] for number in range(before + 1)}
    rng = random.Random(seed)
    run = SharedRun(rng, logs, settings(concurrency=1, queued_max=120))
    backlogs, comes = list(logs)[:-1], list(logs)[-1]
    for name in backlogs:
        run.open(name)
    for _ in range(240):
        run.read(rng.choice(backlogs), 1)
        run.turn()
    run.open(comes)
    run.read(comes, 4)
    run.take()
    (number,) = run.parts[comes].core.fetches
    assert run.schedule.lanes.queued[number].messages == 4
