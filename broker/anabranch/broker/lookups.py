"""Look-ups: which broker owns the bundle of a topic, assigning it when nobody does."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Final

import msgspec

from anabranch.broker.errors import DeadlineError, NotFoundError, OperationError
from anabranch.broker.requests import Requests
from anabranch.broker.routes import owner_to_name
from anabranch.broker.settings import Settings
from anabranch.core import ownership
from anabranch.core.names import Namespace, Topic
from anabranch.core.outcome import Folded
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
        self._assigning: set[str] = set()
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
        """One step towards an owner of a free bundle; the caller looks at what came of it."""
        unit = self._runtime.view.unit(name)
        if unit is None or unit.state is not UnitState.FREE:
            return
        self._requests.actor()  # there must be a lease
        if name in self._assigning or self._assign(name, unit):
            what = (
                f"bundle {name} found no owner: brokers are starting, stopping or out of touch "
                "with the log, and it was not assigned"
            )
            await self._requests.changed(name, deadline, what)
            return
        await asyncio.sleep(_NOBODY_S)
        if asyncio.get_running_loop().time() >= deadline:
            raise DeadlineError(
                f"no broker can take bundle {name}: all are starting, stopping or out of touch "
                "with the log; try again"
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

    def _assign(self, name: str, unit: Unit) -> bool:
        """Proposes an owner, for all who wait; False without a broker to take the bundle."""
        runtime = self._runtime
        counts = runtime.core.candidates(runtime.now())
        for broker, chosen in self._chosen.items():
            if broker in counts:
                counts[broker] += chosen
        record = ownership.assign(runtime.core.actor(), name, unit, counts, runtime.new_id())
        if record is None:
            return False
        target = record.broker
        verdict = runtime.propose(record)
        self._assigning.add(name)
        self._chosen[target] += 1

        def settled(done: asyncio.Future[Folded]) -> None:
            self._assigning.discard(name)
            self._chosen[target] -= 1
            overdue.cancel()
            if not done.cancelled():
                done.exception()  # a node that stops tells everybody who waits by itself

        loop = asyncio.get_running_loop()
        overdue = loop.call_later(self._timeout_s, verdict.cancel)
        verdict.add_done_callback(settled)
        return True

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
