"""Where the time of a layout change goes, as the node tells that carried it out."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from anabranch.broker.topics.controllers.timelines import ChangeStep, Timeline, Timelines
from anabranch.core.entities.segment import SegmentInfo
from anabranch.core.entities.topic import Operation, TopicMove
from anabranch.core.topics.tasks import MakeSegments, SealSegments
from support.binary import reachable
from support.kept_topic import NAME
from support.topic_history import ORDERS, begin, created, delete, topic_move

SEAL = SealSegments(ORDERS, 1, ())
ALL = ("begin", "make", "sealing", "seal", "commit")


def followed(*steps: str) -> list[Timeline | None]:
    """One step in each second; what is told after each record."""
    history, timelines, found = created(), Timelines(), []
    of_before: tuple[SegmentInfo, ...] = ()  # children
    children: tuple[SegmentInfo, ...] = ()
    for now, step in enumerate(steps):
        match step:
            case "make" | "make of before":
                made = children if step == "make" else of_before
                timelines.carried_out(ORDERS, MakeSegments(ORDERS, 1, made), now)
                continue
            case "seal":
                timelines.carried_out(ORDERS, SEAL, now)
                continue
            case "begin":
                begin(history, (0,))
            case "sealing":
                history.accepted(topic_move(history, TopicMove.SEALING))
            case "commit":
                history.accepted(topic_move(history, TopicMove.COMMIT, end_offsets=(100,)))
            case "abort":
                history.accepted(topic_move(history, TopicMove.ABORT))
            case "delete":
                delete(history)
        topic = history.state.topic(ORDERS)
        if step == "begin" and topic is not None:
            of_before, children = children, topic.children
        found.append(timelines.folded(ORDERS, topic, now))
    return found


def test_each_step_counts_from_the_one_before() -> None:
    *others, told = followed(*ALL)
    assert others == [None] * 2
    seconds = dict.fromkeys(
        (ChangeStep.MAKE, ChangeStep.SEALING, ChangeStep.SEAL, ChangeStep.COMMIT), 1.0
    )
    assert told == Timeline(Operation.SPLIT, 1, 2, {**seconds, ChangeStep.WHOLE: 4.0})


@pytest.mark.parametrize(
    "steps",
    [
        ("begin", "sealing", "seal", "commit"),  # another node has made them
        ("make", "begin", "sealing", "commit"),
        ("begin", "abort", "begin", "make of before", "sealing", "seal", "commit"),
        ("begin", "make", "abort"),
        ("begin", "make", "delete"),
    ],
)
def test_nothing_is_told_of_what_is_given_up_or_was_another_nodes_in_part(
    steps: tuple[str, ...],
) -> None:
    assert not any(followed(*steps))


def test_what_was_given_up_does_not_count_for_the_next_one() -> None:
    told = followed("begin", "make", "abort", *ALL)[-1]
    assert told is not None
    assert told.seconds[ChangeStep.WHOLE] == 4


async def test_a_split_is_told_by_its_controllers_node_alone() -> None:
    with capture_logs() as lines:
        async with reachable(2) as cluster:
            owner = await cluster.controller()
            await owner.operations.topics.create(NAME, 1, {})
            await owner.operations.topics.split(NAME, 0)
            for node in cluster.nodes:
                count = node.metrics.registry.get_sample_value
                for step in ChangeStep:
                    labels = {"step": step.value}
                    found = count("anabranch_topic_change_seconds_count", labels)
                    assert found == (1 if node is owner else None), (node, step)
    (line,) = (each for each in lines if each["event"] == "topic.changed")
    assert (line["operation"], line["parents"], line["children"]) == ("split", 1, 2)
    assert line["whole_ms"] >= line["seal_ms"] >= 0
