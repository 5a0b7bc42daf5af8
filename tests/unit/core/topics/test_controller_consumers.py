"""A topic's controller and the consumers of its subscriptions: who is told what, and when."""

from __future__ import annotations

import pytest

from anabranch.core.entities.subscription import SubscriptionOp
from anabranch.core.entities.topic import TopicMove
from anabranch.core.log.records import SubscriptionChange
from anabranch.core.topics.controller import CloseConsumer, Propose, SendAssignment, Unserved
from anabranch.core.topics.tasks import TaskDone
from support.controller_scene import Scene, finish_split, split_with_a_consumer

ALL = [(0, bucket) for bucket in range(4)]


def open_scene(*subscriptions: str) -> Scene:
    scene = Scene()
    scene.open()
    for name in subscriptions:
        scene.subscribe(SubscriptionOp.CREATE, name)
    return scene


def told(scene: Scene) -> list[str]:
    """By subscription, what one look tells a consumer or the log."""
    found = []
    for effect in scene.look():
        if isinstance(effect, SendAssignment):
            found.append(f"{effect.subscription}: push")
        elif isinstance(effect, Propose):
            assert isinstance(effect.record, SubscriptionChange)
            found.append(f"{effect.record.subscription}: {effect.record.op.name}")
    return found


@pytest.fixture
def scene() -> Scene:
    return open_scene("sub")


def test_what_one_subscription_has_to_log_holds_up_none_of_the_others() -> None:
    scene = open_scene("one", "other")
    scene.join("one", "c", 1, 11)
    scene.join("other", "c", 2, 12)
    scene.begin_split()
    finish_split(scene)
    assert scene.controller.heard("one", "c", 11, (), ALL, scene.now)
    assert told(scene) == ["one: push", "one: DRAINED", "other: push"]
    assert scene.controller.heard("other", "c", 12, (), ALL, scene.now)
    assert told(scene) == ["other: DRAINED"], "the first is on its way"


def test_a_consumer_that_falls_silent_is_disconnected(scene: Scene) -> None:
    scene.join("sub", "c", 1, 11)
    scene.look()
    scene.now += 11
    assert CloseConsumer(11, "sub") in scene.look()


@pytest.mark.parametrize("keeps_share", [False, True])
def test_who_leaves_hands_everything_over_at_once_unless_it_comes_back(
    scene: Scene, keeps_share: bool
) -> None:
    scene.join("sub", "a", 1, 11)
    scene.join("sub", "b", 2, 12)
    scene.look()
    scene.controller.heard("sub", "b", 12, (), (), scene.now)
    scene.controller.left("sub", "a", keeps_share=keeps_share)
    told = [each for each in scene.look() if isinstance(each, SendAssignment)]
    assert [each.assignment.shares for each in told if each.connection == 12] == (
        [] if keeps_share else [((0, (0, 1, 2, 3)),)]
    )
    scene.controller.left("another", "a")


@pytest.mark.parametrize("hung_up", [False, True])
def test_the_next_process_of_a_name_waits_for_one_that_may_live(
    scene: Scene, hung_up: bool
) -> None:
    scene.join("sub", "a", 1, 11)
    scene.look()
    scene.controller.closed("sub", "a", 11, scene.now, hung_up=hung_up)
    scene.join("sub", "a", 2, 12)
    assert scene.pushes() == {12: [0] if hung_up else []}


def test_a_bucket_that_waits_for_too_long_is_told_of_once(scene: Scene) -> None:
    scene.join("sub", "a", 1, 11)
    scene.look()
    scene.join("sub", "b", 2, 12)
    told = []
    for _ in range(30):
        told += [each for each in scene.look() if isinstance(each, Unserved)]
        scene.now += 5
        for consumer, connection in (("a", 11), ("b", 12)):  # a settles nothing
            assert scene.controller.heard("sub", consumer, connection, (), (), scene.now)
    assert told == [Unserved("sub", ((0, 2), (0, 3)), 96.0)]


def test_a_report_is_refused_by_who_may_not_act_or_knows_no_such_subscription(scene: Scene) -> None:
    scene.join("sub", "c", 1, 11)
    assert scene.controller.heard("sub", "c", 11, (), (), scene.now)
    assert not scene.controller.heard("another", "c", 11, (), (), scene.now)
    scene.acts = False
    assert not scene.controller.heard("sub", "c", 11, (), (), scene.now)


def test_nobody_subscribes_to_a_topic_that_is_gone() -> None:
    scene = split_with_a_consumer()
    scene.must(scene.change(TopicMove.DELETE))
    scene.answer(scene.task(), TaskDone())
    assert not scene.controller.opened("sub", "c", 1, 12, (), (), scene.now)


# --- a subscription that begins anew --------------------------------------------------------------


def test_consumers_of_a_subscription_that_was_reset_must_subscribe_again(scene: Scene) -> None:
    scene.join("sub", "c", 1, 11)
    scene.subscribe(SubscriptionOp.RESET)
    scene.look()
    assert not scene.controller.heard("sub", "c", 11, (), (), scene.now)
    assert scene.controller.opened("sub", "c", 1, 12, (), (), scene.now)
    assert scene.pushes() == {12: [0]}


def test_a_reset_waits_for_nobody_who_is_known_to_serve_nothing(scene: Scene) -> None:
    scene.join("sub", "a", 1, 11)
    scene.look()
    scene.join("sub", "b", 2, 12)
    scene.look()
    scene.subscribe(SubscriptionOp.RESET)
    scene.look()
    assert scene.controller.opened("sub", "a", 1, 13, (), (), scene.now)
    assert scene.pushes() == {13: [0]}


def test_what_is_held_for_the_former_group_is_free_when_its_holder_has_heard_of_the_new_one(
    scene: Scene,
) -> None:
    scene.join("sub", "a", 1, 11)
    scene.look()
    scene.join("sub", "b", 2, 12)
    scene.look()
    scene.subscribe(SubscriptionOp.RESET)
    assert scene.controller.opened("sub", "a", 1, 13, ALL, (), scene.now, anew=True)
    assert scene.controller.opened("sub", "b", 2, 14, (), (), scene.now)
    assert scene.pushes() == {13: [0], 14: []}
    assert scene.controller.heard("sub", "a", 13, (), (), scene.now)
    assert scene.pushes() == {14: [0]}
