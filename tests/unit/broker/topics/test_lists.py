"""Which lists a node keeps for who may ask again, and how much of its memory they take."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from anabranch.broker.binary import listing
from anabranch.broker.errors import OverloadedError
from anabranch.broker.topics import lists
from anabranch.broker.topics.lists import KeptList
from anabranch.core.names import full_name, parse_namespace
from anabranch.core.topic_lists.selection import (
    PatternError,
    Selection,
    Selector,
    by_pattern,
    by_properties,
)
from anabranch.wire import anabranch_pb2 as pb
from support.binary import one_node, reachable
from support.list_follower import HOME, follower_of, full, make
from support.memory_cluster import until

NAMES = [f"topic-{number:02d}" for number in range(8)]
SELECTED = len(full_name(f"{HOME}/{NAMES[0]}")) * len(NAMES)  # bytes of a list of all of them


class Turns:
    """Of the event loop, while they are counted."""

    number = 0

    async def _count(self) -> None:
        while True:
            self.number += 1
            await asyncio.sleep(0)

    @asynccontextmanager
    async def counted(self) -> AsyncIterator[None]:
        counting = asyncio.create_task(self._count())
        try:
            yield
        finally:
            counting.cancel()
            await asyncio.gather(counting, return_exceptions=True)


async def test_unwatched_lists_take_only_their_share(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lists, "_UNWATCHED_BYTES_MAX", 3 * SELECTED)

    async with one_node() as node:
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
        held = [each.selected_bytes for each in kept._all()]
        assert (
            sum(held) <= 3 * SELECTED + SELECTED
        )  # the one asked for last stays, whatever it takes
        # Who watches has it, whatever others ask for.
        watched = await kept.of(home, same[5])
        kept.watch(watched, lambda: None)
        for each in same:
            await kept.of(home, each)
        assert not watched.is_over


async def test_what_selects_topics_takes_its_share_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Filters that no topic has select nothing, and may be megabytes each."""
    filter_bytes = 60_000
    monkeypatch.setattr(lists, "SELECTED_BYTES_MAX", 4 * filter_bytes)
    monkeypatch.setattr(lists, "_UNWATCHED_BYTES_MAX", 2 * filter_bytes)

    async with reachable() as cluster:
        kept, home = cluster.nodes[0].operations.topics.lists, parse_namespace(HOME)

        def asked(number: int) -> Selection:
            return by_properties([("team", f"{number:02}".ljust(filter_bytes, "x"))])

        for number in range(8):
            await kept.of(home, asked(number))
        assert sum(each.selected_bytes for each in kept._all()) < 3 * filter_bytes
        for number in range(4):
            kept.watch(await kept.of(home, asked(number)), lambda: None)
        with pytest.raises(OverloadedError, match="patterns and property filters"):
            await kept.of(home, asked(4))


async def test_whoever_follows_many_patterns_leaves_room_for_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(listing, "SELECTED_MAX", 2)

    async with one_node() as node, follower_of(node) as client:
        for number in (1, 2):
            client.watch_scalable(number, team=str(number))
        await until(lambda: len(client.lists) == 2)
        client.watch_scalable(3, team="3")
        await until(lambda: 3 in client.errors)
        assert client.errors[3].error == pb.ServerError.TooManyRequests
        assert "this connection follows 2 patterns" in client.errors[3].message
        client.watch_scalable(4, team="1")  # which it follows already
        client.watch_scalable(5)
        await until(lambda: {("scalable", 4), ("scalable", 5)} <= client.lists.keys())


async def test_patterns_are_read_one_in_each_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    turns = Turns()
    read: list[int] = []  # in which turn

    class Noted(Selector):
        def __init__(self, selection: Selection) -> None:
            read.append(turns.number)
            super().__init__(selection)

    monkeypatch.setattr(lists, "Selector", Noted)

    async with reachable() as cluster:
        kept, home = cluster.nodes[0].operations.topics.lists, parse_namespace(HOME)
        await kept.of(home)
        read.clear()
        asked = [kept.of(home, by_pattern(f"{HOME}/x{{{number}}}")) for number in range(1, 30)]
        async with turns.counted():
            *found, refused = await asyncio.gather(
                *asked, kept.of(home, by_pattern("(")), return_exceptions=True
            )
        assert all(isinstance(each, KeptList) for each in found)
        assert isinstance(refused, PatternError)
        assert len(set(read)) == len(read) == 30


async def test_what_changes_while_a_list_is_made_counts_whatever_was_found() -> None:
    kept = KeptList(parse_namespace(HOME), Selection())
    kept.making = asyncio.create_task(asyncio.sleep(0))
    changes = (("came", True), ("went", False), ("back", False), ("back", True))
    assert not any(kept.note(name, present) for name, present in changes)
    await kept.making
    kept.made(["went", "stays"])
    assert list(kept.list.names) == ["back", "came", "stays"]
