"""Look-ups: which broker owns the bundle of a topic, assigning it when nobody does."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from typing import Final

import msgspec

from anabranch.broker.errors import DeadlineError, NotFoundError, OperationError
from anabranch.broker.requests import Requests
from anabranch.broker.routes import owner_to_name
from anabranch.broker.settings import Settings
from anabranch.core import ownership
from anabranch.core.names import Namespace, Topic
from anabranch.core.ring import topic_hash
from anabranch.core.units import Unit, UnitState

# With no broker to take a bundle, there is no event to wait for that is sure to come.
_NOBODY_S: Final = 0.25


class Located(msgspec.Struct, frozen=True):
    """The owner of a topic's bundle; `stale`: this node has lost touch, so it may have changed."""

    broker: str
    web_url: str
    service_url: str
    stale: bool = False


class Lookups:
    """Answers look-ups from the view, and sees to it that there is an answer."""

    def __init__(self, requests: Requests, settings: Settings) -> None:
        self._requests = requests
        self._runtime = requests.runtime
        self._timeout_s = settings.lookup_timeout_millis / 1000
        self._located: dict[str, Located] = {}
        self._generation = -1
        self._assigning: dict[str, asyncio.Task[None]] = {}
        self._chosen: Counter[str] = Counter()  # by own assignments that have no verdict yet

    def locate_cached(self, topic: str, namespace: str) -> Located | None:
        """The answer if it is known at once; costs about a microsecond."""
        runtime = self._runtime
        owner = runtime.routes.owner(topic, namespace)
        if not owner:
            return None
        if self._generation != runtime.generation:
            self._located.clear()
            self._generation = runtime.generation
        located = self._located.get(owner) or self._locate(owner)
        if located is None:
            return None
        runtime.metrics.fast_lookups += 1
        if runtime.has_lease:
            return located
        return msgspec.structs.replace(located, stale=True)

    async def lookup(self, topic: Topic, namespace: Namespace) -> Located:
        """The owner; waits, with a deadline, while the bundle moves or is without one."""
        located = self.locate_cached(topic, namespace)
        if located is not None:
            return located
        outcome = "failed"
        try:
            located = await self._wait_for(topic, namespace)
            outcome = "waited"
        except OperationError as error:
            outcome = type(error).__name__.removesuffix("Error").lower()
            raise
        finally:
            self._runtime.metrics.lookups.labels(outcome).inc()
        return located

    async def owned(self, name: str, deadline: float) -> None:
        """Sees to it that the bundle has an owner, unless it is changing hands already."""
        unit = self._runtime.view.unit(name)
        if unit is None or unit.state is not UnitState.FREE:
            return
        running = self._assigning.get(name)
        if running is None:
            running = asyncio.create_task(self._assign(name, unit))
            self._assigning[name] = running
            running.add_done_callback(lambda _: self._assigning.pop(name, None))
        await asyncio.wait((running,), timeout=deadline - asyncio.get_running_loop().time())
        if asyncio.get_running_loop().time() >= deadline:
            raise DeadlineError(
                f"bundle {name} found no owner in time: brokers are starting, stopping or out of "
                "touch with the log; try again"
            )

    async def _wait_for(self, topic: Topic, namespace: Namespace) -> Located:
        view = self._runtime.view
        deadline = self._requests.deadline(self._timeout_s)
        position = topic_hash(topic)
        while True:
            located = self.locate_cached(topic, namespace)
            if located is not None:
                return located
            found = view.bundle_at(namespace, position)
            if found is None:
                raise NotFoundError(f"Namespace {namespace} does not exist")
            self._requests.actor()  # what is not known needs the log
            name, unit = found
            if unit.state is UnitState.FREE:
                await self.owned(name, deadline)
            else:
                what = f"bundle {name} is {_situation(unit)} and was not served anew"
                await self._requests.changed(name, deadline, what)

    async def _assign(self, name: str, unit: Unit) -> None:
        """One attempt, shared by all who wait; they look at the state to see what came of it."""
        runtime = self._runtime
        counts = runtime.core.candidates(runtime.now())
        for broker, chosen in self._chosen.items():
            if broker in counts:
                counts[broker] += chosen
        record = ownership.assign(runtime.core.actor(), name, unit, counts, runtime.new_id())
        if record is None:
            await asyncio.sleep(_NOBODY_S)
            return
        self._chosen[record.broker] += 1
        with suppress(OperationError):
            await self._requests.propose(record, self._requests.deadline(self._timeout_s))
        self._chosen[record.broker] -= 1

    def _locate(self, owner: str) -> Located | None:
        runtime = self._runtime
        session = runtime.view.session(owner)
        if session is None or not session.open:
            return None
        if owner == runtime.core.me:
            mine = runtime.core.settings
            located = Located(owner, mine.web_url, mine.service_url)
        else:
            beat = runtime.core.liveness.beat_of(owner)
            if beat is None:
                return None
            located = Located(owner, beat.web_url, beat.service_url)
        self._located[owner] = located
        return located


def _situation(unit: Unit) -> str:
    owner = owner_to_name(unit)
    if owner:
        return f"owned by {owner}, which is out of reach,"
    return f"{unit.state.name.lower()}" + (f" to {unit.broker}" if unit.broker else "")
