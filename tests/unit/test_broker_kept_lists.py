"""Which lists a node keeps for who may ask again, and how much of its memory they take."""

from __future__ import annotations

import asyncio

import pytest

from anabranch.broker.topics import lists
from anabranch.core.names import full_name, parse_namespace
from anabranch.core.topic_lists.selection import by_pattern
from support.list_follower import HOME, full, make, run
from support.memory_cluster import MemoryCluster

NAMES = [f"topic-{number:02d}" for number in range(8)]
SELECTED = len(full_name(f"{HOME}/{NAMES[0]}")) * len(NAMES)  # bytes of a list of all of them


def test_lists_of_patterns_that_nobody_watches_take_no_more_than_their_share(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lists, "_UNWATCHED_BYTES_MAX", 3 * SELECTED)

    async def test(cluster: MemoryCluster) -> None:
        node = cluster.nodes[0]
        for name in NAMES:
            await make(node, name)
        kept, home = node.operations.topics.lists, parse_namespace(HOME)
        asked = [by_pattern(f"{HOME}/topic.{{{number}}}") for number in range(3, 23)]
        everything = full(*NAMES)

        async def ask(number: int) -> list[str]:
            return list((await kept.of(home, asked[number])).list.names)

        # Each is answered, also where more are made at once than may stay.
        at_once = await asyncio.gather(*map(ask, range(len(asked))))
        assert at_once == [everything] + [[]] * (len(asked) - 1)
        same = [by_pattern(f"{HOME}/topic-.{{1,{number}}}") for number in range(2, 22)]
        found = await asyncio.gather(*(kept.of(home, each) for each in same))
        assert [list(each.list.names) for each in found] == [everything] * len(same)
        await kept.of(home, same[0])
        held = [kept._selected_bytes(key) for key in kept._unwatched]
        assert (
            sum(held) <= 3 * SELECTED + SELECTED
        )  # the one asked for last stays, whatever it takes
        # Who watches has it, whatever others ask for.
        watched = await kept.of(home, same[5])
        kept.watch(watched, lambda: None)
        for each in same:
            await kept.of(home, each)
        assert not watched.is_over

    run(test)
