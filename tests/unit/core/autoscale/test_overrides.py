"""Overrides of the auto-scale policy on the log: what sets them, and when they are refused."""

from __future__ import annotations

import pytest

from anabranch.core.log.records import PolicyOp
from anabranch.core.log.verdicts import Verdict
from anabranch.core.topics.topic import Operation, TopicMove
from support.world import FIRST, A, World


def test_an_update_sets_what_a_namespace_overrides_of_the_auto_scale_policy() -> None:
    world = World(A)
    home = "public/orders"
    assert world.tell(world.namespace(home, PolicyOp.UPDATE)) is Verdict.UNKNOWN_NAMESPACE
    world.must(world.namespace(home, PolicyOp.CREATE, bundles=3))
    before = world.replica.namespace(home)
    assert before is not None
    assert before.auto_scale == ()
    override = ("enabled", "false", "maxSegments", "8")
    change = world.namespace(home, PolicyOp.UPDATE, auto_scale=override)
    world.must(change)
    after = world.replica.namespace(home)
    assert after is not None
    assert (after.auto_scale, after.bundles) == (override, before.bundles)
    assert (after.version, after.proposal_id) == (before.version + 1, change.proposal_id)
    assert world.tell(change) is Verdict.REPEATED
    world.must(world.namespace(home, PolicyOp.UPDATE))
    removed = world.replica.namespace(home)
    assert removed is not None
    assert removed.auto_scale == ()


@pytest.mark.parametrize(
    "malformed",
    [
        ("enabled",),
        ("enabled", "true", "maxSegments"),
        ("minSegments", "2", "maxSegments", "8"),
        ("maxSegments", "8", "maxSegments", "9"),
    ],
)
def test_an_override_that_is_not_pairs_by_name_is_refused(malformed: tuple[str, ...]) -> None:
    world = World(A)
    bad = world.namespace(FIRST, PolicyOp.UPDATE, auto_scale=malformed)
    assert world.tell(bad) is Verdict.INVALID_VALUE
    world.owned(A)
    world.opened()
    bad_topic = world.topic(TopicMove.POLICY, auto_scale=malformed)
    assert world.tell(bad_topic) is Verdict.INVALID_VALUE


def test_what_the_names_in_an_override_mean_is_not_asked_by_the_log() -> None:
    world = World(A)
    world.must(world.namespace(FIRST, PolicyOp.UPDATE, auto_scale=("ofALaterRelease", "1")))


@pytest.mark.parametrize("busy", [False, True])
def test_a_topics_override_is_set_at_any_time_and_changes_nothing_else(busy: bool) -> None:
    world = World(A)
    world.owned(A)
    world.opened()
    if busy:
        world.must(world.begin(Operation.SPLIT, world.scalable().layout.split_children(0)))
    before = world.scalable()
    world.must(world.topic(TopicMove.POLICY, auto_scale=("maxSegments", "3")))
    after = world.scalable()
    assert after.auto_scale == ("maxSegments", "3")
    assert (after.state, after.segments, after.children) == (
        before.state,
        before.segments,
        before.children,
    )
    world.must(world.topic(TopicMove.POLICY))
    assert world.scalable().auto_scale == ()
