"""Finds the broker that owns a topic's bundle, and assigns a bundle that has no owner."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Final

import msgspec

from anabranch.broker.bundle_owners import owner_to_name
from anabranch.broker.errors import (
    DeadlineExceededError,
    OperationError,
    no_namespace,
)
from anabranch.broker.runtime import Runtime
from anabranch.broker.settings.current import CurrentSettings
from anabranch.core.effects import NodeSettings
from anabranch.core.entities.unit import Unit, UnitState
from anabranch.core.names import Namespace, Topic
from anabranch.core.ring import topic_hash
from anabranch.core.sessions.lease import Heartbeat
from anabranch.wire import clock

# With no broker to take a bundle, there is no event to wait for that is sure to come.
_NOBODY_S: Final = 0.25


class Located(msgspec.Struct, frozen=True):
    """The owner of a topic's bundle; `stale`: this node has lost touch, so it may have changed.

    A URL is "" for a port that the owner does not have.
    """

    broker: str
    web_url: str
    service_url: str
    web_url_tls: str = ""
    service_url_tls: str = ""
    stale: bool = False

    @property
    def where(self) -> str:
        """One of the URLs, for people."""
        return self.service_url or self.service_url_tls or self.web_url or self.web_url_tls


class LookupService:
    """Answers look-ups from the view, and sees to it that there is an answer."""

    def __init__(self, runtime: Runtime, settings: CurrentSettings) -> None:
        self._proposals = runtime.proposals
        self._runtime = runtime
        self._settings = settings
        self._located: dict[str, Located] = {}
        self._generation = -1
        self._assigning: set[str] = set()
        self.failed = 0  # look-ups that ended with an error
        self.states: Counter[tuple[str, str]] = Counter()  # of bundles that had to be waited for
        self._chosen: Counter[str] = Counter()  # by own assignments that have no verdict yet

    def locate_cached(self, topic: str, namespace: str) -> Located | None:
        """The answer if it is known at once; costs about a microsecond."""
        located = self.known(topic, namespace)
        if located is not None:
            self._runtime.metrics.fast_lookups += 1
        return located

    def known(self, topic: str, namespace: str) -> Located | None:
        """The same, not counted: for who does not know yet whether it may be told."""
        runtime = self._runtime
        owner = runtime.routes.owner(topic, namespace)
        if not owner:
            return None
        if self._generation != runtime.generation:
            self._located.clear()
            self._generation = runtime.generation
        located = self._located.get(owner) or self.locate_broker(owner)
        if located is None:
            return None
        if runtime.has_lease:
            return located
        return msgspec.structs.replace(located, stale=True)

    async def lookup(self, topic: Topic, namespace: Namespace) -> Located:
        """Answers as `find`, by the log at the time of the question or later."""
        return await self._proposals.decided(lambda: self.find(topic, namespace))

    async def find(self, topic: Topic, namespace: Namespace) -> Located:
        """Returns the owner; assigns a free bundle, and waits while the bundle moves."""
        located = self.locate_cached(topic, namespace)
        if located is not None:
            return located
        deadline = self._proposals.deadline(self._settings.now.lookup_timeout_s)
        position = topic_hash(topic)
        outcome, state = "failed", ""
        try:
            while located is None:
                found = self._runtime.view.bundle_at(namespace, position)
                if found is None:
                    raise no_namespace(namespace)
                self._proposals.must_have_lease()  # an answer to the unknown needs the log
                name, unit = found
                state = state or unit.state.name.capitalize()
                if unit.state is UnitState.FREE:
                    await self.assigned(name, unit, deadline)
                else:
                    what = f"bundle {name} is {_situation(unit)} and was not served anew"
                    await self._runtime.until_changed(name, deadline, what)
                located = self.locate_cached(topic, namespace)
            outcome = "waited"
        except OperationError as error:
            outcome = type(error).__name__.removesuffix("Error").lower()
            raise
        finally:
            self._runtime.metrics.lookups.labels(outcome).inc()
            self._count(state, failed=outcome != "waited")
        return located

    def _count(self, state: str, *, failed: bool) -> None:
        """Counts a look-up. `state`: the bundle's when it was asked for; "" if it was not found."""
        self.failed += failed
        if state:
            self.states[state, "Total"] += 1
            self.states[state, "Failure"] += failed

    async def assigned(self, name: str, unit: Unit, deadline: float) -> None:
        """Does one step towards an owner of a free bundle; the caller looks at the result."""
        if name in self._assigning or self._assign(name, unit):
            what = (
                f"bundle {name} found no owner: brokers are starting, stopping or out of touch "
                "with the log, and it was not assigned"
            )
            await self._runtime.until_changed(name, deadline, what)
            return
        await asyncio.sleep(_NOBODY_S)
        if asyncio.get_running_loop().time() >= deadline:
            raise DeadlineExceededError(f"no broker can take bundle {name}: {self._why(name)}")

    def _why(self, name: str) -> str:
        """Why no broker can take a bundle, in words."""
        counts = self._runtime.core.candidates(clock.now())
        if not counts:
            return "all are starting, stopping or out of touch with the log; try again"
        broker, grounds = self._runtime.core.chooser()(name, counts)
        removed = {each.removed_by for found in grounds for each in found.weighed} - {""}
        if broker or not removed:
            return "there is one only now; try again"
        return (
            f"{', '.join(sorted(removed))} leaves none of {len(counts)} that are in service; see "
            "`anabranch isolation brokers`, and the settings of docs/balance.md"
        )

    def _assign(self, name: str, unit: Unit) -> bool:
        """Proposes an owner, for all who wait; False without a broker to take the bundle."""
        core, now = self._runtime.core, clock.now()
        counts = core.candidates(now)
        for broker, chosen in self._chosen.items():
            if broker in counts:
                counts[broker] += chosen
        records = core.assign(name, unit, counts, now)
        if not records:
            return False
        target = records[0].broker
        self._assigning.add(name)
        self._chosen[target] += 1

        def over() -> None:
            self._assigning.discard(name)
            self._chosen[target] -= 1

        self._proposals.cast(records, self._settings.now.lookup_timeout_s, over)
        return True

    def locate_broker(self, owner: str) -> Located | None:
        """Returns a broker's addresses; None if it is not there, or was not heard yet."""
        runtime = self._runtime
        session = runtime.view.session(owner)
        if session is None or not session.open:
            return None
        if owner == runtime.core.me:
            said: NodeSettings | Heartbeat | None = runtime.core.settings
        else:
            said = runtime.core.liveness.beat_of(owner)
        if said is None:
            return None
        located = Located(
            owner, said.web_url, said.service_url, said.web_url_tls, said.service_url_tls
        )
        self._located[owner] = located
        return located


def _situation(unit: Unit) -> str:
    owner = owner_to_name(unit)
    if owner:
        return f"owned by {owner}, which is out of reach,"
    return f"{unit.state.name.lower()}" + (f" to {unit.broker}" if unit.broker else "")
