"""The watch of a list of topics against nodes of the test's making: what it tells, and when it asks
anew.
"""

from __future__ import annotations

import random

import pytest

from anabranch.client import DeadlineError, RefusedByNodeError, TopicSelection
from anabranch.client._topics.list_watch import TopicListWatch
from anabranch.client._topics.nodes import Nodes
from anabranch.client._topics.topic_list import ListChange, ToldTopics
from anabranch.core.errors import InvalidInputError
from anabranch.core.topic_lists.selection import Selector, by_pattern
from anabranch.core.topic_lists.sorted_names import topics_hash
from anabranch.wire import anabranch_pb2 as pb
from support.lister import Lister
from support.waiting import until
from support.wire import HOST, on_both_loops, serving

_A, _B, _C = (f"topic://public/default/{each}" for each in "abc")


def _bare(*names: str) -> frozenset[str]:
    return frozenset(name.rpartition("://")[2] for name in names)


_SELECTIONS = [TopicSelection("public/default"), TopicSelection("public/default", pattern="[a-z]")]


def test_what_a_pattern_says_of_its_beginning_and_end_is_of_the_name_in_its_namespace() -> None:
    selection = TopicSelection("public/default", pattern="^orders-.*$")
    assert Selector(by_pattern(selection.wire_pattern)).takes("public/default/orders-eu")


def _watch(selection: TopicSelection, *ports: int) -> tuple[TopicListWatch, list[ListChange]]:
    url = "pulsar://" + ",".join(f"{HOST}:{port}" for port in ports)
    watch = TopicListWatch(Nodes(url), selection)
    seen: list[ListChange] = []
    watch.listeners.append(seen.append)
    return watch, seen


@pytest.mark.parametrize("selection", _SELECTIONS)
@on_both_loops
async def test_differences_are_told_once_each(selection: TopicSelection) -> None:
    node = Lister(_A)
    async with serving(node.session) as server:
        watch, seen = _watch(selection, server.port)
        assert await watch.start() == _bare(_A)
        node.change(added=_B)
        node.change(removed=_A)
        await until(lambda: watch.topics == _bare(_B))
        assert seen == [
            ListChange(added=("public/default/b",)),
            ListChange(removed=("public/default/a",)),
        ]
        await watch.close()


@pytest.mark.parametrize("selection", _SELECTIONS)
@on_both_loops
async def test_what_changed_while_no_node_was_there_is_told_once(selection: TopicSelection) -> None:
    node = Lister(_A, _B)
    async with serving(node.session) as server:
        watch, seen = _watch(selection, server.port)
        await watch.start()
        node.cut()
        node.change(added=_C, removed=_A)  # nobody hears it
        await until(lambda: watch.topics == _bare(_B, _C))
        change = ListChange(added=("public/default/c",), removed=("public/default/a",))
        assert seen == [change]
        node.cut()
        await until(lambda: len(node.asked) == 3)
        node.change(added=_A)
        await until(lambda: len(watch.topics) == 3)
        assert seen == [change, ListChange(added=("public/default/a",))]
        assert node.asked == ["", topics_hash([_A, _B]), topics_hash([_B, _C])]
        await watch.close()


@on_both_loops
async def test_a_difference_that_leads_elsewhere_has_the_whole_list_asked_for() -> None:
    node = Lister(_A)
    async with serving(node.session) as server:
        watch, _ = _watch(_SELECTIONS[1], server.port)
        await watch.start()
        node.topics.add(_B)  # which it forgets to tell
        node.change(added=_C)
        await until(lambda: watch.topics == _bare(_A, _B, _C))
        assert node.asked == ["", ""]
        await watch.close()


@on_both_loops
async def test_a_refusal_that_is_final_is_told_to_who_starts_the_watch() -> None:
    node = Lister()
    node.error = pb.NotAllowedError
    async with serving(node.session) as server:
        watch, _ = _watch(_SELECTIONS[0], server.port)
        with pytest.raises(RefusedByNodeError, match="not for you"):
            await watch.start()


@pytest.mark.parametrize(
    "wrong",
    [
        {"namespace": "public"},
        {"namespace": "public/default", "pattern": 5},
        {"namespace": "public/default", "pattern": "a)|(b"},
        {"namespace": "public/default", "properties": {"a": 1}},
        {"namespace": "public/default", "pattern": "a", "properties": {"a": "b"}},
    ],
)
def test_a_selection_that_means_nothing_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(InvalidInputError):
        TopicSelection(**wrong)  # type: ignore[arg-type]


def test_differences_and_lists_in_any_order_of_loss_end_in_the_node_s_own_list() -> None:
    names = [f"topic://public/default/t{number}" for number in range(20)]
    for seed in range(60):
        draw = random.Random(seed)
        node: set[str] = set()
        told, topics = ToldTopics(), set[str]()
        told.replace(())
        for _ in range(60):
            added = set(draw.sample(names, 2)) - node
            removed = set(draw.sample(sorted(node), min(len(node), 1)))
            node = (node - removed) | added
            if draw.random() < 0.2:
                continue  # it is lost
            change = told.differ(added, removed, topics_hash(node))
            if change is None:
                change = told.replace(node)
            assert not topics & set(change.added)
            assert set(change.removed) <= topics
            topics = (topics - set(change.removed)) | set(change.added)
            assert topics == told.topics == _bare(*node)


@on_both_loops
async def test_who_waits_in_vain_is_told_what_nodes_said() -> None:
    node = Lister(_A)
    node.error = pb.ServerError.TooManyRequests
    async with serving(node.session) as server:
        watch, _ = _watch(TopicSelection("public/default"), server.port)
        with pytest.raises(DeadlineError, match=r"in 1 s: .*refused to tell .*not for you"):
            await watch.start(1.0)
