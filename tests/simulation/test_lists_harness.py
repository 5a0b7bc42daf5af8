"""The simulation of lists finds planted bugs: each test breaks a rule, and a seed must notice."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterable
from functools import partial
from typing import Any

import pytest
from pydantic import ValidationError

from anabranch.broker.binary import listing
from anabranch.broker.configuration import Configuration
from anabranch.broker.proxy.clients.watches import KeptWatches
from anabranch.broker.proxy.lists.relay import ListRelay
from anabranch.broker.settings import overrides
from anabranch.broker.topics.kept_list import KeptList
from anabranch.wire.anabranch_pb2 import BaseCommand
from anabranch.wire.connection import Connection
from anabranch.wire.memory.limiter import HeldMemory
from anabranch.wire.memory.semaphore import AsyncSemaphore
from simulation.planted import drawn, noticed

pytestmark = pytest.mark.simulation

violation_found = partial(noticed, "lists")


def behind_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every seed has a proxy, and many behind it, and connections that break."""
    drawn(
        monkeypatch,
        "draw_lists",
        proxied=6,
        listers=5,
        mute=1,
        operation_interval_s=0.05,
        fault_kinds=("break", "cut", "crash"),
        fault_interval_s=0.5,
    )


def test_a_difference_that_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    tell, count = listing._Listing._tell, itertools.count(1)

    def forgetful(self: Any, watch: Any, changes: bytes) -> None:
        if next(count) % 50:
            tell(self, watch, changes)

    monkeypatch.setattr(listing._Listing, "_tell", forgetful)
    violation_found("does not have the list", first_seed=4)


def test_changes_during_the_making_of_a_list_that_are_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    made = KeptList.made

    def hasty(self: KeptList, names: Iterable[str]) -> None:
        self._meanwhile.clear()
        made(self, names)

    monkeypatch.setattr(KeptList, "made", hasty)
    told_wrong = ("was never what a node told", "does not have the list", "keeps another list")
    violation_found(*told_wrong, first_seed=25)


def test_a_permit_that_is_not_given_back_on_cancellation(monkeypatch: pytest.MonkeyPatch) -> None:
    leave = HeldMemory.__aexit__

    async def forgetful(self: HeldMemory, kind: Any, error: Any, trace: Any) -> None:
        if isinstance(error, asyncio.CancelledError):
            return
        await leave(self, kind, error, trace)

    monkeypatch.setattr(HeldMemory, "__aexit__", forgetful)
    # Where all of it is gone, nobody gets a list any more.
    starved = ("was answered after", "does not have the list")
    violation_found("still gives lists", *starved, first_seed=1)


def test_a_client_that_does_not_read_and_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Connection, "_watch_reader", lambda self, unsent: None)
    violation_found("who does not read", "was answered after", first_seed=1)


def test_a_setting_that_is_applied_by_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    take = Configuration._take

    def late(self: Configuration) -> None:
        asyncio.get_running_loop().call_later(0.2, take, self)

    monkeypatch.setattr(Configuration, "_take", late)
    violation_found("goes by other settings")


def test_an_override_by_another_spelling_that_a_node_stumbles_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As nodes did: any name may be on the log."""
    value = overrides._value

    def lenient(name: str, text: str, said: object = None) -> object:
        return value(overrides.run_time_name(name), text, said)

    monkeypatch.setattr(overrides, "_value", lenient)
    with pytest.raises(ValidationError, match="scalableTopicMergeWindow"):
        violation_found("", first_seed=13)


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
    violation_found("was never what a node told", first_seed=4)


@pytest.mark.long
def test_a_watch_that_a_proxy_does_not_open_at_another_node(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    behind_proxy(monkeypatch)

    def forgetful(self: KeptWatches) -> Iterable[Any]:
        return [each for each in moved(self) if each.type != BaseCommand.WATCH_SCALABLE_TOPICS]

    moved = KeptWatches.moved
    monkeypatch.setattr(KeptWatches, "moved", forgetful)
    violation_found("does not have the list", first_seed=5)


def test_a_limiter_that_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AsyncSemaphore, "configure", lambda self, limits: None)
    violation_found("has other limits")
