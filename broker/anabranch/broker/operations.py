"""The operations that a node offers; semantics and words follow Pulsar's admin interface.

A request that changes something returns once this node has read in the log that it is done. The
node tries again when it lost a race against others. An error says why a request cannot be meant or
must not be done. The node answers queries from its view at once.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Final, TypeVar

import msgspec

from anabranch.broker.balance.shown import ShownBalance
from anabranch.broker.bundles.cuts import BundleCuts, BundleWord
from anabranch.broker.bundles.lookups import LookupService
from anabranch.broker.configuration import Configuration
from anabranch.broker.errors import (
    ConflictError,
    NotFoundError,
    PreconditionError,
    no_namespace,
)
from anabranch.broker.load.traffic import TrafficReports
from anabranch.broker.metrics.topic_lists import TopicListPrefix, measured_limiter
from anabranch.broker.placements import PlacementPolicies
from anabranch.broker.proposals import RACES_MAX
from anabranch.broker.runtime import Runtime
from anabranch.broker.settings import Settings
from anabranch.broker.tenants.limits import TenantLimits
from anabranch.broker.tenants.permissions import RolePermissions
from anabranch.broker.tenants.tenancy import Tenancy
from anabranch.broker.topics.adopting import Adoptions
from anabranch.broker.topics.build import TopicParts
from anabranch.broker.topics.operations import TopicOperations
from anabranch.core.balance.settings import SplitAlgorithm
from anabranch.core.bundles import propose
from anabranch.core.effects import BrokerState
from anabranch.core.entities.unit import LEADERSHIP, Unit, UnitState
from anabranch.core.errors import InvalidInputError
from anabranch.core.fold.digests import to_hex
from anabranch.core.log.records import Cause, UnitMove
from anabranch.core.log.state import leader_of, live_bundles
from anabranch.core.log.verdicts import Verdict
from anabranch.core.names import (
    SCALABLE_DOMAIN,
    Namespace,
    Topic,
    namespace_of,
)
from anabranch.core.ring import topic_hash
from anabranch.wire import clock

_T = TypeVar("_T")

_TOGETHER_MAX: Final = 256  # bundles of a namespace that are unloaded at once


class LogPosition(msgspec.Struct, frozen=True):
    """This node's place in the log, and how sure it is of itself."""

    next_offset: int
    digest: str
    horizon: int  # -1: no snapshot known
    ahead: int  # the furthest that any node has said to be
    mode: str
    session: int
    lease_remaining_ms: int


class Operations:
    """The requests of one node, for use in its event loop."""

    def __init__(self, runtime: Runtime, settings: Settings, parts: TopicParts) -> None:
        self.runtime = runtime
        self._proposals = runtime.proposals
        self.configuration = Configuration(runtime, settings)
        current = self._settings = self.configuration.current
        self.lookups = LookupService(runtime, current)
        self.limits = TenantLimits(runtime, current)
        self.tenancy = Tenancy(runtime, current)
        self.placements = PlacementPolicies(runtime, current)
        self.permissions = RolePermissions(runtime, current)
        self.balance = ShownBalance(runtime, self.lookups)
        self._cuts = BundleCuts(runtime, parts.load)
        self.topics = TopicOperations(runtime, self.lookups, current, parts)
        self.adoptions = Adoptions(self.topics, parts.survey)
        self.topic_list_limiter = measured_limiter(
            current.now.topic_list_limits,
            TopicListPrefix.BROKER,
            settings.cluster_name,
            runtime.metrics.registry,
        )
        current.subscribe(lambda now: self.topic_list_limiter.configure(now.topic_list_limits))
        self.decided = self._proposals.decided
        self.traffic = TrafficReports(
            settings.scalable_topic_load_window_seconds,
            settings.scalable_topic_load_report_interval_seconds,
            message_bytes_max=settings.max_message_size,
        )

    # --- bundles ------------------------------------------------------------------------

    async def unload(self, unit: str, target: str = "") -> None:
        """Has the owner give the bundle up: to the broker `target`, or to the one that a look-up
        finds.

        Nothing happens to a bundle that is free, or that the target owns already.
        """
        deadline = self._proposals.deadline(self._settings.now.operation_timeout_s)
        self._bundle(unit)
        takers = self.runtime.core.takers(clock.now())
        if target and target not in takers:
            self._proposals.must_have_lease()  # without it, this node knows not who takes part
            raise ConflictError(
                "Not allowed unload namespace bundle to inactive destination broker: "
                f"{target} is not one of {', '.join(sorted(takers)) or 'none'}"
            )
        released = await self._release(unit, target, deadline)
        while released:
            now = self.runtime.view.unit(unit)
            if now is None or now.version > released:
                if now is None or not target or now.state is UnitState.DELETED:
                    return
                if now.state is UnitState.OWNED and now.broker == target:
                    return
                if now.broker != target:
                    raise ConflictError(
                        f"bundle {unit} could not be given to {target}: it is "
                        f"{now.state.name.lower()} {now.broker} after {now.move.name.lower()}"
                    )
            await self.runtime.until_changed(unit, deadline, f"bundle {unit} was not handed over")

    def bundle_of(self, topic: Topic, ns: Namespace) -> str:
        """The bundle that a topic falls into; a scalable one must be there."""
        self.runtime.namespace(ns)
        domain, _, name = topic.partition("://")
        if domain == SCALABLE_DOMAIN and self.runtime.view.topic(name) is None:
            raise NotFoundError(f"Topic {topic} not found")
        found = self.runtime.view.bundle_at(ns, topic_hash(topic))
        if found is None:
            raise no_namespace(ns)
        return found[0]

    async def bundle_meant(self, ns: Namespace, word: BundleWord) -> str:
        """The bundle that a word stands for. Raises NotFoundError where there is none."""
        self.runtime.namespace(ns)
        return await self._cuts.meant(ns, word)

    async def cuts(
        self, unit: str, algorithm: SplitAlgorithm, positions: Sequence[int]
    ) -> list[int]:
        """Returns the positions at which a bundle is to be cut; none means in halves.

        Raises PreconditionError.
        """
        if algorithm is SplitAlgorithm.POSITIONS:
            return sorted(set(positions))
        if algorithm is SplitAlgorithm.RANGE:
            return []
        self._bundle(unit)
        return await self._cuts.between_topics(unit, algorithm)

    async def unload_namespace(self, ns: Namespace) -> None:
        """Every bundle of the namespace is given up by its owner."""
        self.runtime.namespace(ns)
        self._proposals.must_have_lease()
        limit = asyncio.Semaphore(_TOGETHER_MAX)

        async def one(name: str) -> None:
            # A bundle that was split meanwhile is there no more; that is as good as unloaded.
            async with limit:
                with contextlib.suppress(PreconditionError):
                    await self.unload(name)

        names = [name for name, _ in live_bundles(self.runtime.view, ns)]
        await asyncio.gather(*(one(name) for name in names))

    async def split(
        self, unit: str, positions: Sequence[int] = (), unload: bool = False
    ) -> tuple[str, ...]:
        """Divides the bundle at the positions, else in halves; returns the new bundles' names.

        A free bundle is assigned first. With `unload` the owner then gives them up.
        """
        deadline = self._proposals.deadline(self._settings.now.operation_timeout_s)

        def build() -> UnitMove | None:
            actor, new_id = self._proposals.actor(), self._proposals.new_id()
            try:
                return propose.split(actor, unit, self._bundle(unit), positions, new_id)
            except InvalidInputError as error:
                raise PreconditionError(str(error)) from None

        record = await self._proposals.settle(
            build, {}, deadline, lambda: self._settled(unit, deadline, owned=True)
        )
        if record is None:
            raise ConflictError(f"bundle {unit} has no owner any more; try again")
        return await self._split_done(unit, record, unload, deadline)

    async def _split_done(
        self, unit: str, record: UnitMove, unload: bool, deadline: float
    ) -> tuple[str, ...]:
        while True:
            now = self.runtime.view.unit(unit)
            if now is None or now.state is UnitState.DELETED:
                break
            if now.version > record.version:
                raise ConflictError(
                    f"the split of bundle {unit} was broken off by {now.move.name.lower()}; "
                    "try again"
                )
            await self.runtime.until_changed(unit, deadline, f"bundle {unit} was not split")
        home = namespace_of(unit)
        children = tuple(f"{home}/{child}" for child in record.children)
        if unload:
            await asyncio.gather(*(self.unload(child) for child in children))
        return children

    async def _release(self, unit: str, target: str, deadline: float) -> int:
        """Returns the version that the release made, or 0 when there is nothing to release."""

        def build() -> UnitMove | None:
            actor, new_id = self._proposals.actor(), self._proposals.new_id()
            before = self._bundle(unit)
            return propose.release(actor, unit, before, target, new_id, Cause.OPERATOR)

        def left() -> ConflictError:
            return ConflictError(
                "Not allowed unload namespace bundle to inactive destination broker: "
                f"{target} has just left"
            )

        record = await self._proposals.settle(
            build,
            {Verdict.TARGET_UNKNOWN: left},
            deadline,
            lambda: self._settled(unit, deadline, owned=False),
        )
        return record.version if record is not None else 0

    async def _settled(self, name: str, deadline: float, *, owned: bool) -> None:
        """Returns once the bundle is on no move; with `owned`, once it has an owner."""
        while True:
            unit = self._bundle(name)
            self._proposals.must_have_lease()
            if unit.state is UnitState.OWNED or (unit.state is UnitState.FREE and not owned):
                return
            if unit.state is UnitState.FREE:
                await self.lookups.assigned(name, unit, deadline)
            else:
                what = f"bundle {name} is {unit.state.name.lower()} and did not settle"
                await self.runtime.until_changed(name, deadline, what)

    def _bundle(self, name: str) -> Unit:
        home, _, part = name.rpartition("/")
        self.runtime.namespace(Namespace(home))
        unit = self.runtime.view.unit(name)
        if unit is None or unit.state is UnitState.DELETED:
            raise PreconditionError(f"Cannot find bundle {part} in the bundles list of {home}")
        return unit

    # --- namespaces ---------------------------------------------------------------------

    async def delete_namespace(self, ns: Namespace) -> None:
        """The namespace goes, once its bundles are unloaded."""
        for _ in range(RACES_MAX):
            for topic in self.runtime.view.topics(ns):
                raise ConflictError(
                    f"Cannot delete non empty namespace {ns}: it has scalable topics, such as "
                    f"topic://{topic}; delete them first"
                )
            await self.unload_namespace(ns)
            if await self.tenancy.delete_namespace(ns):
                return
        raise ConflictError(
            f"namespace {ns} is in use: its bundles are looked up as fast as they are unloaded; "
            "stop its clients first"
        )

    # --- queries --------------------------------------------------------------------------

    def bundles(self, ns: Namespace) -> list[tuple[str, Unit]]:
        """Ranges and states of the bundles that tile the namespace now, in ring order."""
        self.runtime.namespace(ns)
        found = live_bundles(self.runtime.view, ns)
        return [(name.rpartition("/")[2], unit) for name, unit in found]

    def brokers(self) -> list[str]:
        """Brokers that take part now."""
        core = self.runtime.core
        found = set(core.takers(clock.now()))
        if core.session and core.mode in (BrokerState.SERVING, BrokerState.SAFE):
            found.add(core.me)
        return sorted(found)

    def leader(self) -> str:
        """The leader's broker id; "" while there is none."""
        broker = leader_of(self.runtime.view)[0]
        session = self.runtime.view.session(broker) if broker else None
        return broker if session is not None and session.open else ""

    def owned(self, broker: str) -> list[tuple[str, Unit]]:
        """The bundles that the broker may act for."""
        units = self.runtime.view.units_of(broker)
        return [(n, unit) for n, unit in units if unit.holder == broker and n != LEADERSHIP]

    def concerns(self) -> list[str]:
        """Returns sentences on faults of a node that may serve; each names the remedy."""
        return [sentence for worry in self.runtime.worries for sentence in worry()]

    def position(self) -> LogPosition:
        """Returns this node's place in the log."""
        core, view = self.runtime.core, self.runtime.view
        return LogPosition(
            next_offset=view.next_offset,
            digest=to_hex(view.digest),
            horizon=view.horizon,
            ahead=max(self.runtime.ahead, view.next_offset),
            mode=core.mode.value,
            session=core.session,
            lease_remaining_ms=round(core.lease.remaining_s(clock.now()) * 1000),
        )
