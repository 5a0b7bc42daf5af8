"""Which topics a node looks at in a tick."""

from __future__ import annotations

from collections.abc import Iterable

from anabranch.broker.topics.controllers.schedule import TickSchedule

UNITS = ("public/default/0x00000000_0x7fffffff", "public/default/0x7fffffff_0xffffffff")


def everything(_: str) -> bool:
    return True


def names(count: int) -> list[str]:
    return [f"public/default/t{number:05}" for number in range(count)]


def looked(
    schedule: TickSchedule, now: float, topics: list[str], mine: Iterable[str] = ()
) -> list[str]:
    own = frozenset(mine or topics)
    return list(schedule.looks(now, UNITS, lambda _: topics, own.__contains__))


def test_every_controller_has_one_turn_in_ten_ticks_however_often_it_was_made_anew() -> None:
    schedule = TickSchedule(60.0, 0.0)
    for name in [*names(25), *names(25), *names(3)]:
        schedule.take_up(name)
    turns = [name for _ in range(10) for name in schedule.turns(everything)]
    assert turns == [*names(25), *names(5)]  # three in each tick


def test_a_tick_has_no_more_than_250_turns_and_all_controllers_have_theirs_in_order() -> None:
    schedule = TickSchedule(60.0, 0.0)
    for name in names(3_000):
        schedule.take_up(name)
    ticks = [list(schedule.turns(everything)) for _ in range(12)]
    assert [len(each) for each in ticks] == [250] * 12
    assert [name for each in ticks for name in each] == names(3_000)


def test_who_has_no_controller_any_more_loses_its_turn() -> None:
    schedule = TickSchedule(60.0, 0.0)
    for name in names(10):
        schedule.take_up(name)
    assert [name for _ in range(10) for name in schedule.turns(lambda _: False)] == []
    schedule.take_up("public/default/t00003")
    assert list(schedule.turns(everything)) == ["public/default/t00003"]


def test_what_is_due_is_looked_at_once_when_the_log_says_so() -> None:
    schedule = TickSchedule(60.0, 0.0)
    for name, due_ms in (("late", 3_000.0), ("soon", 1_000.0), ("never", 1_000.0), ("moved", 1.0)):
        schedule.remind(name, due_ms)
    schedule.remind("never", None)
    schedule.remind("moved", 2_000.0)
    schedule.remind("soon", 1_000.0)
    assert list(schedule.due(999)) == []
    assert list(schedule.due(1_000)) == ["soon"]
    assert list(schedule.due(1_000)) == []
    assert list(schedule.due(9_000)) == ["moved", "late"]
    schedule.remind("late", 3_000.0)
    assert list(schedule.due(9_000)) == ["late"]


def test_what_is_due_at_once_is_looked_at_some_in_each_tick() -> None:
    schedule = TickSchedule(60.0, 0.0)
    for name in names(500):
        schedule.remind(name, 1.0)
    assert [len(list(schedule.due(1))) for _ in range(4)] == [200, 200, 100, 0]


def test_a_namespace_is_looked_through_a_few_topics_in_each_tick() -> None:
    schedule = TickSchedule(60.0, 0.0)
    topics = names(500)
    assert looked(schedule, 1.0, topics) == []
    schedule.look_through(UNITS)
    ticks = [looked(schedule, 1.0, topics) for _ in range(4)]
    assert [len(tick) for tick in ticks] == [200, 200, 100, 0]
    assert [name for tick in ticks for name in tick] == topics


def test_other_nodes_topics_cost_no_look_but_do_not_hold_up_a_tick() -> None:
    schedule = TickSchedule(60.0, 0.0)
    topics = names(5_000)
    mine = topics[3_000:3_010]
    schedule.look_through(UNITS[:1])
    assert [looked(schedule, 1.0, topics, mine) for _ in range(3)] == [[], mine, []]


def test_all_namespaces_are_looked_through_again_after_the_interval() -> None:
    schedule = TickSchedule(60.0, 0.0)
    assert looked(schedule, 59.9, names(3)) == []
    assert looked(schedule, 60.0, names(3)) == names(3)
    assert looked(schedule, 119.9, names(3)) == []
    assert looked(schedule, 120.0, names(3)) == names(3)
