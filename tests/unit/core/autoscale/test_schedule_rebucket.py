"""How a decision about several segments is carried out, one after the other."""

from __future__ import annotations

import pytest

from anabranch.core.autoscale.decisions import NoAction, Rebucket
from anabranch.core.autoscale.schedule import Trigger
from anabranch.core.log.records import TopicCause
from anabranch.core.topics.tasks import TaskFailed
from anabranch.core.topics.topic import Operation, TopicMove
from support.autoscale import load
from support.autoscale_scene import INTERVAL_S, Scene, begins

COOLDOWN_S = 61.0  # more than that of the policy


def is_waiting(scene: Scene) -> bool:
    return scene.controller.scaler.is_waiting


@pytest.fixture
def scene() -> Scene:
    """Three segments of one bucket each shall have four."""
    scene = Scene(segments=3)
    scene.join(*"abcdefghi")
    return scene


def test_segments_of_one_decision_are_rebucketed_and_told_one_after_the_other(scene: Scene) -> None:
    first = scene.begin()
    assert (first.operation, first.parents) == (Operation.REBUCKET, (0,))
    assert first.cause is TopicCause.BELOW_SPLIT_RATE_FLOOR
    assert begins(scene.look()) == []
    found = scene.carry_on()
    assert scene.buckets == [4, 4, 4]
    decisions = [each.decision for each in found if isinstance(each.decision, Rebucket)]
    assert [each.segment_ids for each in decisions] == [(1,), (2,)]
    assert {each.buckets for each in decisions} == {4}
    told = [each.done for each in found]
    assert [each.segment_ids for each in told if isinstance(each, Rebucket)] == [(0,), (1,), (2,)]


def test_the_rest_waits_for_no_rebucket_cooldown_but_the_next_decision_does(scene: Scene) -> None:
    scene.carry_on()
    assert scene.buckets == [4, 4, 4]
    scene.join(*"jklm")
    found = scene.evaluated()
    assert found.trigger is Trigger.CONSUMERS
    assert isinstance(found.decision, NoAction)
    assert "wait for the rebucket cooldown" in found.decision.why


def test_a_failure_in_the_middle_keeps_what_is_done_and_stops_the_rest(scene: Scene) -> None:
    scene.world.committed(Operation.REBUCKET, scene.begin_children())
    scene.world.must(next(each for each in begins(scene.look()) if each.parents == (1,)))
    scene.carry_on(TaskFailed("no space", for_good=True))
    assert scene.buckets == [4, 1, 1]
    scene.pass_time(5)
    scene.carry_on()
    assert scene.buckets == [4, 1, 1]
    scene.pass_time(INTERVAL_S)
    scene.carry_on()
    assert scene.buckets == [4, 4, 4]


def test_another_operation_in_between_has_the_rest_decided_anew(scene: Scene) -> None:
    assert len(begins(scene.look())) == 1  # is overtaken
    scene.by_hand(Operation.MERGE, scene.topic.layout.merge_children(1, 2))
    scene.pass_time(1.0)
    scene.carry_on()
    assert scene.buckets == [8, 8]


def test_a_rebucket_by_hand_that_overtakes_one_begins_the_cooldown(scene: Scene) -> None:
    """Found by the simulation: the rest went on, as if it had been the decision's."""
    assert len(begins(scene.look())) == 1  # is overtaken
    scene.by_hand(Operation.REBUCKET, scene.topic.layout.rebucket_children(0, 2))
    scene.pass_time(1.0)
    scene.carry_on()
    assert scene.buckets == [2, 1, 1]
    scene.pass_time(COOLDOWN_S)
    scene.carry_on()
    assert scene.buckets == [4, 4, 4]


@pytest.mark.parametrize("level", ["topic", "namespace"])
def test_switching_off_stops_the_rest(scene: Scene, level: str) -> None:
    scene.begin()
    if level == "topic":
        scene.override(enabled=False)
    else:
        scene.override_namespace(enabled=False)
    scene.carry_on()
    assert scene.buckets == [4, 1, 1]


def test_a_topic_made_again_is_none_of_the_former_ones_business(scene: Scene) -> None:
    scene.begin()
    world = scene.world
    world.must(world.topic(TopicMove.DELETE))
    world.must(world.topic(TopicMove.REMOVE))
    world.opened(3)
    scene.pass_time(1.0)
    scene.carry_on()
    assert scene.buckets == [1, 1, 1]


# --- what is told of decisions that took over ---------------------------------------------------


def test_what_was_decided_is_told_once_when_it_has_taken_over() -> None:
    scene = Scene()
    scene.loads = {0: load(150)}
    begun = scene.evaluated()
    assert begun.done is None
    assert is_waiting(scene)
    scene.pass_time(1.0)
    assert [each.done for each in scene.carry_on()] == [None, begun.decision]
    assert is_waiting(scene), "for the end of the cooldown"
    scene.pass_time(COOLDOWN_S)
    assert [each.done for each in scene.carry_on()] == [None]
    assert not is_waiting(scene)


def test_nothing_is_told_when_another_of_the_kind_took_over_instead() -> None:
    scene = Scene(segments=2)
    scene.loads = {0: load(150)}
    assert len(begins(scene.look())) == 1  # is overtaken
    scene.by_hand(Operation.SPLIT, scene.topic.layout.split_children(1))
    scene.pass_time(1.0)
    assert scene.evaluated().done is None


def test_nothing_is_told_of_what_was_given_up_or_done_by_hand() -> None:
    scene = Scene()
    scene.by_hand(Operation.REBUCKET, scene.topic.layout.rebucket_children(0, 1))
    assert [each.done for each in scene.carry_on()] == [None]
    scene.loads = {1: load(150)}
    scene.pass_time(INTERVAL_S)
    scene.begin()
    assert [each.done for each in scene.carry_on(TaskFailed("no space", for_good=True))] == []
    scene.pass_time(COOLDOWN_S + INTERVAL_S)
    scene.loads = {}
    scene.carry_on()
    assert not is_waiting(scene)
