"""The one owner of a node's state: everything here runs in the event loop, as plain functions.

Log entries and heartbeats come in, and NodeCore's effects go out. Those who wait for a verdict or
for a unit to change are told. No `await` lies between reading the state and acting on it. Kafka,
threads and start-up are in `node`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, Protocol

import msgspec

from anabranch.broker.bundle_owners import Routes
from anabranch.broker.digest_watch import DigestWatch, Mismatch
from anabranch.broker.errors import DeadlineExceededError, UnavailableError, no_namespace, stopping
from anabranch.broker.logging import get_logger
from anabranch.broker.metrics.registry import Metrics, record_kind
from anabranch.broker.proposals import Append, AskEnd, Proposals, ids
from anabranch.channel.log.entries import Entry
from anabranch.core.effects import (
    AppendRecord,
    BrokerState,
    CloseUnit,
    Effect,
    Halt,
    NodeSettings,
    SendHeartbeat,
)
from anabranch.core.entities.override import OVERRIDES_PREFIX
from anabranch.core.entities.session import Session
from anabranch.core.entities.tenant import NamespaceInfo
from anabranch.core.entities.unit import LEADERSHIP, Unit, UnitState
from anabranch.core.fold.digests import to_hex
from anabranch.core.fold.replica import Replica
from anabranch.core.log.outcome import Folded
from anabranch.core.log.records import Record, UnitMove
from anabranch.core.log.state import Change
from anabranch.core.log.verdicts import Verdict
from anabranch.core.node import NodeCore
from anabranch.core.sessions.lease import Heartbeat
from anabranch.wire import clock

Publish = Callable[[Heartbeat, Callable[[Heartbeat], None]], None]
Worry = Callable[[], Iterable[str]]  # sentences for people on a node that serves


class FoldingReplica(Replica, Protocol):
    """A replica that folds log entries by itself: the view, or its double in memory."""

    def read_batch(self, entries: Sequence[Entry]) -> list[Folded]: ...
    def horizon_reached(self, next_offset: int) -> None: ...


class UnitServer(Protocol):
    """Serves what lies in the bundles that this node owns. Called in the event loop."""

    def opened(self, unit: str) -> None:
        """This node serves the bundle from now on."""
        ...

    def close(self, unit: str) -> None:
        """Serve the bundle no more; then call the runtime's `closed`, at once or later."""
        ...

    def folded(self, changes: Iterable[Change]) -> None:
        """The state has changed: every change, in order, also those that are changed again."""
        ...

    def ticked(self) -> None:
        """Time has passed: about a tenth of a second."""
        ...

    def replaced(self) -> None:
        """The state was loaded anew: anything may have changed."""
        ...


class StateFollower(Protocol):
    """Is told what changed before anybody is served by the new state. Called in the event loop."""

    def folded(self, changes: Iterable[Change]) -> None:
        """The state has changed: every change, in order."""
        ...

    def replaced(self) -> None:
        """The state was loaded anew: anything may have changed."""
        ...


class Ended(msgspec.Struct, frozen=True):
    """Why a node ended; `clean`: it was asked to and had given everything away."""

    reason: str
    clean: bool


def _nobody_asks(seconds: float) -> None:
    return None


def _nothing_to_configure() -> None:
    return None


class Runtime:
    """A node's state and all who wait for it to change, for use in the event loop only."""

    def __init__(
        self,
        settings: NodeSettings,
        view: FoldingReplica,
        append: Append,
        publish: Publish,
        metrics: Metrics,
        ask_end: AskEnd,
        *,
        waiting_max: int = 50_000,
        verbose: bool = False,
    ) -> None:
        self.view = view
        self.core = NodeCore(settings, view, ids())
        self.routes = Routes(view)
        self.server: UnitServer | None = None  # serves the topics in bundles; it makes itself known
        self.followers: list[StateFollower] = []
        self.metrics = metrics
        self.waiting_max = waiting_max
        # Called when overrides of settings have changed.
        self.reconfigure: Callable[[], None] = _nothing_to_configure
        self._publish = publish
        self.verbose = verbose
        self._loop = asyncio.get_running_loop()
        self._log = get_logger(broker=settings.broker)
        self.digests = DigestWatch(settings.broker, self._is_member)
        self._watchers: dict[str, list[asyncio.Future[None]]] = {}
        self.watching = 0
        self._urls: dict[str, tuple[str, ...]] = {}  # each broker's addresses
        self._mode = BrokerState.JOINING
        self.worries: list[Worry] = [self.digests.concerns]
        self.on_closed: Callable[[float], None] = _nobody_asks  # told the closing time
        self._closing: dict[str, float] = {}
        self.listeners: list[Callable[[Sequence[Folded]], None]] = []  # told the read entries
        self.ahead = 0  # the furthest that any node has folded
        self.generation = 0  # changes whenever a broker may be reached otherwise, or no more
        self.ended: asyncio.Future[Ended] = self._loop.create_future()
        self.proposals = Proposals(self.core, append, ask_end, self.ended, metrics)

    # --- questions ----------------------------------------------------------------------

    @property
    def has_lease(self) -> bool:
        """True if this node may act for itself and knows that its view is recent."""
        return self.core.lease.holds(clock.now())

    def _is_member(self, broker: str) -> bool:
        session = self.view.session(broker)
        return session is not None and session.open

    @staticmethod
    def now() -> float:
        """The clock that leases and silence are measured on."""
        return clock.now()

    def soon(self, action: Callable[..., object], *args: Any) -> None:
        """Calls it in the event loop, from any thread; does nothing when the process is ending."""
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(action, *args)

    # --- events that come in ------------------------------------------------------------------

    def joined(self) -> None:
        """The view has caught up: take part from now on."""
        self._do(self.core.joined(clock.now()))

    def replaced(self, view: FoldingReplica) -> None:
        """The view was built anew, because the log no longer leads on from the old one."""
        self.view = self.core.state = view
        self.routes = Routes(view)
        self.reconfigure()
        self.generation += 1
        for follower in self.followers:
            follower.replaced()
        if self.server is not None:
            self.server.replaced()
        self.proposals.log_end.folded()
        self._do(self.core.joined(clock.now()))
        self._wake_all()

    def received(self, entries: Sequence[Entry]) -> None:
        """Entries were read from the log, in order."""
        if self.ended.done():
            return
        folded = self.view.read_batch(entries)
        changes = [change for entry in folded for change in entry.outcome.changes]
        self.routes.changed(changes)
        for follower in self.followers:
            follower.folded(changes)
        is_overridden = False
        for key, entity in changes:
            if isinstance(entity, Session):
                self.generation += 1
            is_overridden = is_overridden or key.startswith(OVERRIDES_PREFIX)
        if is_overridden:
            self.reconfigure()  # before anything is decided by this state
        effects = self.core.folded(folded, clock.now())
        self._do(effects)
        for entry in folded:
            self.metrics.folded(entry)
            self._settle(entry)
        if self.server is not None:
            self.server.folded(changes)
        for listener in self.listeners:
            listener(folded)
        self._wake(changes)
        self.proposals.log_end.folded()
        self._alarm(self.digests.own(self.view.next_offset, to_hex(self.view.digest)))
        self._mode_changed()

    def heard(self, beats: Iterable[tuple[Heartbeat, int]]) -> None:
        """Heartbeats were read, each with the log's timestamp."""
        if self.ended.done():
            return
        now = clock.now()
        for beat, log_ms in beats:
            self.core.heard(beat, log_ms, now)
            self._alarm(self.digests.heard(beat))
            self.ahead = max(self.ahead, beat.next_offset)
            if beat.horizon > self.view.horizon and beat.horizon <= self.view.next_offset:
                self.view.horizon_reached(beat.horizon)
            urls = (beat.web_url, beat.service_url, beat.web_url_tls, beat.service_url_tls)
            if self._urls.get(beat.broker) != urls:
                self._urls[beat.broker] = urls
                self.generation += 1
                self._wake_all()

    def tick(self) -> None:
        """Time has passed."""
        if self.ended.done():
            return
        self._do(self.core.tick(clock.now()))
        if self.server is not None:
            self.server.ticked()
        self._mode_changed()

    def closed(self, unit: str) -> None:
        """Nothing of the bundle is served here any more."""
        self._note_closed(unit)
        if not self.ended.done():
            self._do(self.core.closed(unit, clock.now()))

    def drain(self) -> None:
        """A graceful stop was asked for; `ended` tells when everything is given away."""
        self._log.info("node.draining", units=len(self.core.serving))
        self._do(self.core.drain(clock.now()))

    def fail(self, reason: str) -> None:
        """The node must not go on."""
        self._end(Ended(reason, clean=False))

    def _settle(self, entry: Folded) -> None:
        record = entry.record
        if record is None:
            self._log.warning("log.unreadable", offset=entry.offset)
            return
        mine = record.actor == self.core.me
        if mine:
            self.proposals.read_back(record.proposal_id, entry)
            if entry.outcome.verdict is not Verdict.ACCEPTED:
                self._wake_one(record.key)
        if mine or self.verbose:
            self._explain(record, entry)

    def _explain(self, record: Record, entry: Folded) -> None:
        fields: dict[str, object] = {
            "key": record.key,
            "version": record.version,
            "verdict": entry.outcome.verdict.name.lower(),
            "offset": entry.offset,
            "actor": record.actor,
        }
        if isinstance(record, UnitMove) and record.broker:
            fields["to"] = record.broker
        cause = getattr(record, "cause", None)
        if cause is not None:
            fields["why"] = cause.name.lower()
        for name in ("principal", "proxied_by"):
            if said := getattr(record, name, ""):
                fields[name] = said
        self._log.info(f"decision.{record_kind(record)}", **fields)

    # --- questions ----------------------------------------------------------------------

    def namespace(self, name: str) -> NamespaceInfo:
        """Returns the view's entry of a namespace. Raises NotFoundError."""
        found = self.view.namespace(name)
        if found is None:
            raise no_namespace(name)
        return found

    # --- those who wait -----------------------------------------------------------------

    def changed(self, key: str) -> asyncio.Future[None]:
        """Done when the entity of this key may have come to rest, or who can be reached changed.

        A bundle that gets assigned is not told of: it is told of when it is owned. Raises
        UnavailableError when too many wait, and once the node has ended, which tells of nothing.
        """
        if self.ended.done():
            raise stopping()
        if self.watching >= self.waiting_max:
            raise UnavailableError(
                f"{self.watching} requests wait for bundles already; try again later, or raise "
                "maxConcurrentLookupRequest"
            )
        future: asyncio.Future[None] = self._loop.create_future()
        self._watchers.setdefault(key, []).append(future)
        self.watching += 1
        future.add_done_callback(lambda done: self._unwatch(key, done))
        return future

    async def until_changed(self, key: str, deadline: float, what: str) -> None:
        """Waits for a change of the entity. Raises DeadlineExceededError, naming `what`."""
        try:
            async with asyncio.timeout_at(deadline):
                await self.changed(key)
        except TimeoutError:
            raise DeadlineExceededError(f"{what} in time; try again") from None
        if self.ended.done():
            raise stopping()

    def _unwatch(self, key: str, future: asyncio.Future[None]) -> None:
        self.watching -= 1
        left = self._watchers.get(key)
        if left is not None and future in left:
            left.remove(future)
            if not left:
                del self._watchers[key]

    def _wake(self, changes: Iterable[Change]) -> None:
        if not self._watchers:
            return
        for key, entity in changes:
            if isinstance(entity, Session):
                self._wake_all()
                return
            if type(entity) is not Unit or entity.state is not UnitState.ASSIGNING:
                self._wake_one(key)

    def _wake_one(self, key: str) -> None:
        for future in self._watchers.pop(key, ()):
            if not future.done():
                future.set_result(None)

    def _wake_all(self) -> None:
        watchers, self._watchers = self._watchers, {}
        for futures in watchers.values():
            for future in futures:
                if not future.done():
                    future.set_result(None)

    # --- effects ------------------------------------------------------------------------

    def _do(self, effects: Iterable[Effect]) -> None:
        queue = deque(effects)
        records: list[Record] = []
        while queue:
            effect = queue.popleft()
            if isinstance(effect, AppendRecord):
                records.append(effect.record)
            elif isinstance(effect, SendHeartbeat):
                self._publish(effect.beat, self._beat_acked)
            elif isinstance(effect, Halt):
                self._end(Ended(effect.reason, effect.clean))
            elif isinstance(effect, CloseUnit):
                self._closing[effect.unit] = clock.now()
                if self.server is None or effect.unit == LEADERSHIP:
                    self._note_closed(effect.unit)
                    queue.extend(self.core.closed(effect.unit, clock.now()))
                else:
                    self.server.close(effect.unit)
            else:
                if self.verbose:
                    self._log.info("unit.served", key=effect.unit)
                if self.server is not None and effect.unit != LEADERSHIP:
                    self.server.opened(effect.unit)
                self._wake_one(effect.unit)  # it may have been assigned long before
        if records:
            self.proposals.send(records)

    def _note_closed(self, unit: str) -> None:
        began = self._closing.pop(unit, None)
        if began is not None:
            self.on_closed(clock.now() - began)

    def _beat_acked(self, beat: Heartbeat) -> None:
        """Called from any thread."""
        self._loop.call_soon_threadsafe(self._acked, beat)

    def _acked(self, beat: Heartbeat) -> None:
        self.core.beat_acked(beat, clock.now())

    def _end(self, ended: Ended) -> None:
        if self.ended.done():
            return
        self.core.stop()
        self.ended.set_result(ended)
        log = self._log.info if ended.clean else self._log.error
        log("node.ended", reason=ended.reason, clean=ended.clean)
        self.proposals.end(UnavailableError(f"the node has stopped: {ended.reason}"))
        self._wake_all()

    def _mode_changed(self) -> None:
        mode = self.core.mode
        if mode is self._mode:
            return
        if mode is BrokerState.SAFE:
            self.metrics.session_lapses.inc()
        log = self._log.warning if mode is BrokerState.SAFE else self._log.info
        log("node.mode", mode=mode.value, before=self._mode.value, session=self.core.session)
        self._mode = mode
        self._wake_all()

    def _alarm(self, mismatches: Iterable[Mismatch]) -> None:
        for mismatch in mismatches:
            self.metrics.digest_mismatches.inc()
            self._log.error("digest.mismatch", **msgspec.structs.asdict(mismatch))
