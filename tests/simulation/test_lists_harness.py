"""The simulation of lists finds planted bugs: each test breaks a rule, and a seed must notice."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterable
from typing import Any

import msgspec
import pytest
from pydantic import ValidationError

from anabranch.broker.binary import listing
from anabranch.broker.configuration import Configuration
from anabranch.broker.http.routes import topic_names
from anabranch.broker.proxy.clients.watches import KeptWatches
from anabranch.broker.proxy.lists.relay import ListRelay
from anabranch.broker.proxy.lists.shared import SharedLists
from anabranch.broker.settings import current, overrides
from anabranch.broker.topics.kept_list import KeptList
from anabranch.client._topics.list_watch import TopicListWatch
from anabranch.client._topics.topic_list import ListChange, ToldTopics
from anabranch.core.topic_lists.semaphore import (
    Effect,
    Permit,
    Semaphore,
    SemaphoreLimits,
)
from anabranch.core.topic_lists.sorted_names import SortedNames
from anabranch.wire.anabranch_pb2 import BaseCommand
from anabranch.wire.connection import Connection
from anabranch.wire.memory.limiter import HeldMemory
from anabranch.wire.memory.semaphore import AsyncSemaphore
from anabranch.wire.memory.shared import SharedMemory
from simulation import list_proxy, run
from simulation.list_plan import draw_lists
from simulation.planted import first_violation

pytestmark = pytest.mark.simulation

SEEDS_MAX = 100


def violation_found(*expected: str, first_seed: int = 0) -> None:
    """Fails unless a seed finds a violation, and the first one found is one of those expected."""
    report = first_violation(range(first_seed, first_seed + SEEDS_MAX), lists=True)
    assert any(each in report.violation for each in expected), report.explain()


def tight(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every seed has long lists, little memory for them, and many who want some."""
    wanted = {"topics": 60, "listers": 5, "mute": 3, "memory": 2, "change_interval_s": 2.0}
    monkeypatch.setattr(
        run,
        "draw_lists",
        lambda rng: msgspec.structs.replace(draw_lists(rng), **wanted),
    )


def behind_proxy(monkeypatch: pytest.MonkeyPatch, **more: int) -> None:
    """Every seed has a proxy, and many behind it, and connections that break."""
    wanted: dict[str, object] = {
        "proxied": 6,
        "listers": 5,
        "mute": 1,
        "operation_interval_s": 0.05,
        "fault_kinds": ("break", "cut", "crash"),
        "fault_interval_s": 0.5,
        **more,
    }
    monkeypatch.setattr(
        run,
        "draw_lists",
        lambda rng: msgspec.structs.replace(draw_lists(rng), **wanted),
    )


def test_a_difference_that_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    tell, count = listing._Listing._tell, itertools.count(1)

    def forgetful(self: Any, watch: Any, changes: bytes) -> None:
        if next(count) % 50:
            tell(self, watch, changes)

    monkeypatch.setattr(listing._Listing, "_tell", forgetful)
    violation_found("does not have the list")


def test_changes_during_the_making_of_a_list_that_are_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    made = KeptList.made

    def hasty(self: KeptList, names: Iterable[str]) -> None:
        self._meanwhile.clear()
        made(self, names)

    monkeypatch.setattr(KeptList, "made", hasty)
    told_wrong = ("was never what a node told", "a walk through")
    violation_found(*told_wrong, "does not have the list", "keeps another list", first_seed=25)


def test_a_watch_that_is_put_down_as_told_too_far(monkeypatch: pytest.MonkeyPatch) -> None:
    """What came while a list was on its way to a client."""
    begin = listing._Listing._tell_some

    def early(self: Any, group: Any, generation: int, changes: bytes) -> None:
        told = list(group.values())
        begin(self, group, generation, changes)
        for watch in told:
            self._settle(watch)  # else it is due for ever, which takes long to be seen
            watch.generation = watch.kept.list.generation

    monkeypatch.setattr(listing._Listing, "_tell_some", early)
    violation_found("does not have the list", "still gives lists")


def test_a_list_of_before_that_is_kept_by_a_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that takes what changed while it was away for nothing."""
    replace = ToldTopics.replace

    def add_only(self: ToldTopics, told: Iterable[str]) -> ListChange:
        return replace(self, [*told, *self._told])

    monkeypatch.setattr(ToldTopics, "replace", add_only)
    violation_found("does not have the list", "changed")


def test_differences_of_a_former_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that goes on with its list, though the connection was lost in between."""
    by_properties = TopicListWatch._watch_by_properties

    def trusting(self: TopicListWatch, connection: Any) -> None:
        by_properties(self, connection)
        if self._list.is_known:
            self._answered = True
            self._told = lambda update: (  # type: ignore[method-assign]
                TopicListWatch._told(self, update) if update.HasField("diff") else None
            )

    monkeypatch.setattr(TopicListWatch, "_watch_by_properties", trusting)
    violation_found("does not have the list", "changed")


def test_properties_that_change_unnoticed(monkeypatch: pytest.MonkeyPatch) -> None:
    note = KeptList.note

    def by_name_only(self: KeptList, name: str, present: bool) -> bool:
        known = self.making is None and name in set(self.list.names)
        return False if known and self.selection.properties else note(self, name, present)

    monkeypatch.setattr(KeptList, "note", by_name_only)
    violation_found("does not have the list", "keeps another list", "a walk through")


def test_a_permit_that_is_not_given_back_on_cancellation(monkeypatch: pytest.MonkeyPatch) -> None:
    leave = HeldMemory.__aexit__

    async def forgetful(self: HeldMemory, kind: Any, error: Any, trace: Any) -> None:
        if isinstance(error, asyncio.CancelledError):
            return
        await leave(self, kind, error, trace)

    monkeypatch.setattr(HeldMemory, "__aexit__", forgetful)
    # Where all of it is gone, nobody gets a list any more.
    starved = ("was answered after", "does not have the list")
    violation_found("still gives lists", "let request", "lets request", *starved)


def test_a_request_that_is_not_withdrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a client that has gone while it waited: what it is granted then comes back to nobody."""

    async def stubborn(self: Any, number: int, effects: Iterable[Effect]) -> Permit:
        future = self._loop.create_future()
        self._waiting[number] = future
        self._carry_out(effects)
        return await asyncio.shield(future)

    monkeypatch.setattr(AsyncSemaphore, "_ended", stubborn)
    violation_found("still gives lists", "lets request", "was answered after", first_seed=26)


def test_shared_memory_that_its_last_user_keeps(monkeypatch: pytest.MonkeyPatch) -> None:
    give_back, count = SharedMemory._give_back, itertools.count(1)

    def forgetful(self: SharedMemory) -> None:
        if next(count) % 40 == 0:
            self._acquired = None
        else:
            give_back(self)

    monkeypatch.setattr(SharedMemory, "_give_back", forgetful)
    violation_found("still gives lists", "lets request", "was answered after")


def test_small_requests_before_large_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    def smallest_first(self: Semaphore, now_ns: int) -> list[Effect]:
        effects: list[Effect] = []
        while self._queue and self.available > 0:
            number = min(self._queue, key=lambda each: self._queue[each].permits)
            request = self._queue[number]
            if request.needed > self.available:
                break
            del self._queue[number]
            effects.append(self._granted(request, now_ns - request.asked_ns))
        return effects

    monkeypatch.setattr(Semaphore, "look", smallest_first)
    violation_found("before")


def test_limits_that_count_for_those_who_come_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever holds more than a lowered limit is forgotten."""
    configure = Semaphore.configure

    def anew(self: Semaphore, limits: SemaphoreLimits, now_ns: int) -> list[Effect]:
        self._held = min(self._held, max(0, limits.permits_max))
        return configure(self, limits, now_ns)

    monkeypatch.setattr(Semaphore, "configure", anew)
    violation_found("gave permits", "are held")


def test_a_time_out_that_nobody_watches(monkeypatch: pytest.MonkeyPatch) -> None:
    tight(monkeypatch)
    monkeypatch.setattr(AsyncSemaphore, "_ring", lambda self: setattr(self, "_alarm", None))
    violation_found("lets request", "was answered after")


def test_a_client_that_does_not_read_and_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Connection, "_watch_reader", lambda self, unsent: None)
    violation_found("who does not read", "was answered after")


def test_a_setting_that_is_applied_by_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    take = Configuration._take

    def late(self: Configuration) -> None:
        asyncio.get_running_loop().call_later(0.2, take, self)

    monkeypatch.setattr(Configuration, "_take", late)
    violation_found("goes by other settings")


def test_overrides_that_contradict_in_the_order_of_the_reader(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        current,
        "oldest_first",
        lambda overrides: [(name, each.value) for name, each in reversed(overrides.items())],
    )
    violation_found("goes by other settings", first_seed=54)


def test_an_override_by_another_spelling_that_a_node_stumbles_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As nodes did: any name may be on the log."""
    value = overrides._value

    def lenient(name: str, text: str, said: object = None) -> object:
        return value(overrides.run_time_name(name), text, said)

    monkeypatch.setattr(overrides, "_value", lenient)
    with pytest.raises(ValidationError, match="scalableTopicMergeWindow"):
        violation_found("")


def test_a_proxy_that_tells_a_list_without_asking_a_node(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may have changed since others were told it, and whoever asks may know that."""
    behind_proxy(monkeypatch)
    ask = ListRelay._ask

    async def hasty(self: ListRelay, asked: Any) -> None:
        shared = self._lists.told_last(asked.command) if asked.is_repeatable else None
        if shared is None:
            await ask(self, asked)
            return
        asked.shared = shared
        if await asyncio.shield(shared.landed):
            await self._send(asked, shared)

    monkeypatch.setattr(ListRelay, "_ask", hasty)
    violation_found("was never what a node told")


def test_a_watch_that_a_proxy_does_not_open_at_another_node(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    behind_proxy(monkeypatch)

    def forgetful(self: KeptWatches) -> Iterable[Any]:
        return [each for each in moved(self) if each.type != BaseCommand.WATCH_SCALABLE_TOPICS]

    moved = KeptWatches.moved
    monkeypatch.setattr(KeptWatches, "moved", forgetful)
    violation_found("does not have the list")


def test_those_who_wait_for_a_list_that_its_reader_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    behind_proxy(monkeypatch, listers=12, proxied=12, walkers=0)  # many ask for the same one
    # While one asks there is none for a list: so who is to read one waits, and others wait for it.
    monkeypatch.setattr(list_proxy, "MEMORY", 12)

    def silent(self: SharedLists, shared: Any, reader: object) -> None:
        shared.users -= 1
        if not shared.users:
            self._forget(shared)
            shared.end()

    monkeypatch.setattr(SharedLists, "leave", silent)
    violation_found("does not have the list", first_seed=5)


def test_a_limiter_that_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AsyncSemaphore, "configure", lambda self, limits: None)
    violation_found("has other limits")


def test_a_page_that_needs_the_topic_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A continuation that takes the name it begins behind for one that is there."""
    pieces_after = SortedNames.pieces_after

    def trusting(self: SortedNames, name: str, count: int) -> tuple[bytes, ...]:
        if not name or name in set(self):
            return pieces_after(self, name, count)
        found = pieces_after(self, name, count + 1)
        names = [each for piece in found for each in piece.split(b",")][1:]
        return (b",".join(names),) if names else ()

    monkeypatch.setattr(SortedNames, "pieces_after", trusting)
    violation_found("which was there throughout")


def test_pages_by_their_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """A list that goes on where it was, whatever has come or gone before that place."""
    places: dict[str, int] = {}
    first = topic_names._first

    def numbered(names: SortedNames, after: str, count: int, piece_bytes: int) -> list[str]:
        at = places.get(after, 0) if after else 0
        found = list(names)[at:][: len(first(names, after, count, piece_bytes))]
        if found:
            places[found[-1]] = at + len(found)
        return found

    monkeypatch.setattr(topic_names, "_first", numbered)
    violation_found("which was there throughout", "twice, or not in order")
