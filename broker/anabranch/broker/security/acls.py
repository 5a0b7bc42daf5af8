"""`AclReconciler`: the leader makes Kafka's rules of grants.

It compares Kafka's rules with the wanted ones, so a former leader's progress does not matter. After
a change of the log it does so at once, by Kafka's last answer. Now and then it asks Kafka again,
because somebody may have changed the rules by hand.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Final, Protocol

from prometheus_client import Histogram

from anabranch.broker.logging import get_logger
from anabranch.broker.metrics.registry import Metrics
from anabranch.broker.runtime import Runtime
from anabranch.broker.settings import Settings
from anabranch.core.entities.permission import PERMISSIONS_PREFIX
from anabranch.core.entities.unit import LEADERSHIP
from anabranch.core.errors import AnabranchError
from anabranch.core.log.outcome import Folded
from anabranch.core.security.acls import (
    Acl,
    AclDifference,
    PrincipalMapping,
    difference,
    wanted_acls,
)
from anabranch.wire import clock

_LOOK_S: Final = 0.2  # between two looks whether this node leads
_KAFKA_S: Final = 5.0
_PAUSE_S: Final = 1.0  # after a failure
_MATTER: Final = ("tenant:", "namespace:", PERMISSIONS_PREFIX)  # keys of what rules depend on
_SHOWN: Final = 8  # rules of one line of the log
_SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class AclKeeper(Protocol):
    """The questions to Kafka, in threads: `channel.kafka.acls.KafkaAcls`, or its double."""

    def find(self, deadline_s: float) -> frozenset[Acl]: ...
    def carry_out(self, change: AclDifference, deadline_s: float) -> None: ...


class AclReconciler:
    """One node's. `run` until it is cancelled; for use in the event loop."""

    def __init__(
        self,
        runtime: Runtime,
        prefix: str,
        mapping: PrincipalMapping,
        interval_s: float,
        open_keeper: Callable[[], AclKeeper],
    ) -> None:
        self.results: Counter[str] = Counter()
        self.differing = 0  # rules that were missing or too many when it was looked last
        self.observe: Callable[[float], None] = lambda _: None  # told the time that a change took
        self._runtime = runtime
        self._prefix = prefix
        self._mapping = mapping
        self._interval_s = interval_s
        self._open = open_keeper
        self._keeper: AclKeeper | None = None
        self._view = runtime.view
        self._known: frozenset[Acl] | None = None  # Kafka's rules, as far as known
        self._since: float | None = None  # the first change that it was not told yet
        self._look_at = 0.0
        self._reached = 0  # up to where on the log it was told everything
        self._why = ""  # it could not be told, or some of it
        self._unmapped: frozenset[str] = frozenset()
        self._awake = asyncio.Event()
        self._log = get_logger(broker=runtime.core.me)
        runtime.listeners.append(self._folded)
        runtime.worries.append(self._concerns)

    @property
    def offset(self) -> int:
        """The offset before which the log's grants count on Kafka; 0 if it is not known here."""
        if self._known is None:
            return 0
        # While rules differ, Kafka is being told: nothing later than before counts there yet.
        is_told = self._since is None and not self.differing
        return self._runtime.view.next_offset if is_told else self._reached

    # --- rules that are wanted -----------------------------------------------------------------

    def _folded(self, folded: Sequence[Folded]) -> None:
        is_new = self._view is not self._runtime.view  # it was built anew
        self._view = self._runtime.view
        keys = [key for entry in folded for key, _ in entry.outcome.changes]
        if is_new or any(key.startswith(_MATTER) for key in keys):
            if self._since is None:
                self._since = clock.now()
                self._awake.set()
        elif LEADERSHIP in keys:
            self._awake.set()

    # --- the leader ---------------------------------------------------------------------

    async def run(self) -> None:
        """Tells Kafka until it is cancelled."""
        while True:
            # Python 3.11's `wait_for` would forget the cancellation if the event came with it.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_S):
                    await self._awake.wait()
            self._awake.clear()
            if not self._leads():
                self._rest()
            elif self._is_due():
                await self._reconcile()

    def _leads(self) -> bool:
        # A state that may be wrong must not reach Kafka.
        trusted = self._runtime.has_lease and not self._runtime.digests.is_outvoted()
        return trusted and self._runtime.core.is_leader()

    def _rest(self) -> None:
        """Forgets Kafka's rules: another node leads, and will ask Kafka for them."""
        self._known = self._since = None
        self.differing = 0
        self._why, self._look_at, self._unmapped = "", 0.0, frozenset()

    def _is_due(self) -> bool:
        if self._why:
            return clock.now() >= self._look_at
        return self._since is not None or clock.now() >= self._look_at

    async def _reconcile(self) -> None:
        began = self._since
        try:
            await self._told(began)
        except AnabranchError as error:
            self._known = None  # some of it may be done
            self._since = began if began is not None else self._since
            self._look_at = clock.now() + _PAUSE_S
            self.results["failed"] += 1
            if str(error) != self._why:
                self._log.warning("acls.failed", why=str(error))
            self._why = str(error)

    async def _told(self, began: float | None) -> None:
        """Asks Kafka for its rules if they are not known, or were asked long ago; then changes
        them.
        """
        asked_at = clock.now()
        known = self._known
        if known is None or asked_at >= self._look_at:
            known = await asyncio.to_thread(lambda: self._kept().find(_KAFKA_S))
            if not self._leads():
                return
        # From here on nothing is awaited until it is decided what to do.
        self._since, reached = None, self._runtime.view.next_offset
        wanted = wanted_acls(self._runtime.view, self._prefix, self._mapping)
        self._unmapped = wanted.unmapped
        change = difference(wanted.acls, known, self._prefix, self._mapping)
        self.differing = len(change.missing) + len(change.surplus)
        if change:
            await asyncio.to_thread(lambda: self._kept().carry_out(change, _KAFKA_S))
            self._explain(change, reached, asked_at, is_drift=began is None)
        if known is not self._known:
            self._look_at = asked_at + self._interval_s
        self._known = known.difference(change.surplus).union(change.missing)
        self._reached, self._why, self.differing = reached, "", 0
        self.results["ok"] += 1
        if began is not None:
            self.observe(clock.now() - began)

    def _kept(self) -> AclKeeper:
        if self._keeper is None:
            self._keeper = self._open()
        return self._keeper

    def _explain(self, change: AclDifference, offset: int, began: float, *, is_drift: bool) -> None:
        self._log.info(
            "acls.changed",
            why="they were not as the log says" if is_drift else "the log has changed",
            offset=offset,
            created=len(change.missing),
            deleted=len(change.surplus),
            added="; ".join(map(str, change.missing[:_SHOWN])),
            taken="; ".join(map(str, change.surplus[:_SHOWN])),
            ms=round((clock.now() - began) * 1000, 1),
        )

    def _concerns(self) -> Iterator[str]:
        if self._why:
            yield f"Kafka's ACLs are not what was granted: {self._why}"
        for role in sorted(self._unmapped):
            yield (
                f"role {role!r} has something granted that Kafka cannot be told, because there "
                "everybody is called so: grant it to another role"
            )


def acl_reconciler(
    runtime: Runtime, settings: Settings, open_keeper: Callable[[], AclKeeper]
) -> AclReconciler | None:
    """Returns the reconciler that the settings ask for, with its metrics.

    Returns None if Kafka's ACLs are not this node's.
    """
    made = None
    if settings.kafka_acls_enabled:
        made = AclReconciler(
            runtime,
            settings.topic_prefix,
            settings.principal_mapping,
            settings.kafka_acls_interval_seconds,
            open_keeper,
        )
    measure_acls(made, runtime.metrics)
    return made


def measure_acls(reconciler: AclReconciler | None, metrics: Metrics) -> None:
    """Registers metrics of Kafka's ACLs: none if they are not this node's."""
    nothing: Counter[str] = Counter()
    metrics.gauge(
        "anabranch_kafka_acls_differing",
        "Missing and surplus ACLs on Kafka, as far as the leader knows.",
        lambda: 0 if reconciler is None else reconciler.differing,
    )
    metrics.gauge(
        "anabranch_kafka_acls_offset",
        "Grants before this log offset are enforced on Kafka; 0 on nodes that do not lead.",
        lambda: 0 if reconciler is None else reconciler.offset,
    )
    metrics.totals(
        "anabranch_kafka_acl_reconciles",
        "Times that this node made Kafka's ACLs equal to the grants, by result.",
        "result",
        lambda: nothing if reconciler is None else reconciler.results,
    )
    enforced = Histogram(
        "anabranch_kafka_acl_enforced_seconds",
        "From the leader's reading of a changed grant until Kafka had its ACLs.",
        buckets=_SECONDS,
        registry=metrics.registry,
    )
    if reconciler is not None:
        reconciler.observe = enforced.observe
