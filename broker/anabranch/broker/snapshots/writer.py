"""The leader's duty to write snapshots of the view, and to trim the log behind them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final, ParamSpec, TypeVar

from anabranch.broker.logging import get_logger
from anabranch.broker.metrics.registry import Metrics
from anabranch.broker.runtime import Runtime
from anabranch.broker.settings.current import CurrentSettings
from anabranch.broker.snapshots.trim_watch import ArchiveMetrics, TrimWatch
from anabranch.channel.codec import Horizon
from anabranch.channel.errors import FencedError, SnapshotLostError
from anabranch.channel.snapshots.compactor import Compactor
from anabranch.core.errors import AnabranchError
from anabranch.core.fold.digests import to_hex
from anabranch.core.log.state import leader_of
from anabranch.projections.errors import ViewDamagedError
from anabranch.projections.view import View
from anabranch.wire import clock

_RECORDS: Final = 10_000  # of the log, after which a snapshot does not wait for its time
_LOOK_S: Final = 0.2
_PAUSE_S: Final = 5.0  # after a failure
_CLOSE_S_MAX: Final = 10.0

T = TypeVar("T")
P = ParamSpec("P")


class Snapshots:
    """Writes a snapshot whenever one is due, as long as this node leads.

    It takes the changes from the view between two batches, and waits for Kafka in a thread. Another
    leader's snapshots fence this one's: that is logged, and no harm is done.
    """

    def __init__(
        self,
        runtime: Runtime,
        view: Callable[[], View],
        connect: Callable[[], Compactor],
        settings: CurrentSettings,
        metrics: Metrics,
    ) -> None:
        self._runtime = runtime
        self._view = view
        self._connect = connect
        self._settings = settings
        self._metrics = metrics
        self._compactor: Compactor | None = None
        self._epoch = 0
        self._begins_at: int | None = None  # the log, when it was last trimmed
        self._last_s = clock.now()
        self._busy: asyncio.Future[Any] | None = None
        self._archives = TrimWatch(settings.own.archive_stalled_seconds)
        runtime.worries.append(self._archives.concerns)
        metrics.registry.register(ArchiveMetrics(self._archives))
        self.writing = asyncio.Lock()  # held while a snapshot reads the view
        self._log = get_logger(broker=runtime.core.me)

    async def run(self) -> None:
        """Until it is cancelled."""
        try:
            while True:
                await asyncio.sleep(_LOOK_S)
                if not self._leads():
                    await self._release()
                elif self._due():
                    await self._attempt(self._write)
                elif self._trim_due():
                    await self._attempt(self._trim)
        finally:
            # A thread cannot be cancelled, and it still reads the view.
            if self._busy is not None and not self._busy.done():
                await asyncio.wait((self._busy,), timeout=_CLOSE_S_MAX)
            await self._release()

    async def _in_thread(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        running = asyncio.ensure_future(asyncio.to_thread(call, *args, **kwargs))
        self._busy = running
        return await asyncio.shield(running)

    def _leads(self) -> bool:
        # A state that may be wrong must not become the one that others start from.
        trusted = self._runtime.has_lease and not self._runtime.digests.is_outvoted()
        return trusted and self._runtime.core.is_leader()

    def _due(self) -> bool:
        view = self._view()
        behind = view.next_offset - max(view.horizon, 0)
        waited = clock.now() - self._last_s >= self._settings.now.snapshot_interval_seconds
        return behind >= _RECORDS or (behind > 0 and waited)

    def _trim_due(self) -> bool:
        """The archive may have caught up since the last snapshot, though nothing has changed."""
        waited = clock.now() - self._last_s >= self._settings.now.snapshot_interval_seconds
        return waited and self._compactor is not None

    async def _attempt(self, what: Callable[[], Awaitable[None]]) -> None:
        self._last_s = clock.now()
        try:
            async with self.writing:
                await what()
        except FencedError as error:
            self._metrics.snapshots.labels("fenced").inc()
            self._log.info("snapshot.fenced", why=str(error))
        except ViewDamagedError:
            raise  # another try would meet the same damage, and another start builds another view
        except AnabranchError as error:
            self._metrics.snapshots.labels("failed").inc()
            self._log.warning("snapshot.failed", why=str(error))
        else:
            return
        await self._release()
        await asyncio.sleep(_PAUSE_S)

    async def _write(self) -> None:
        _, epoch = leader_of(self._runtime.view)
        if self._compactor is None or self._epoch != epoch:
            await self._release()
            self._compactor = self._connect()
            self._epoch = epoch
            await self._in_thread(self._compactor.begin)
        found = self._compactor.horizon
        if found is not None and found.next_offset > self._view().next_offset:
            self._log.info("snapshot.ahead", horizon=found.next_offset)
            return  # the one before us had folded further; it is our turn once we have too
        if found is not None and found.next_offset < self._view().horizon:
            raise SnapshotLostError(
                f"the newest snapshot in Kafka stands for offset {found.next_offset}, but one for "
                f"{self._view().horizon} was committed: the snapshot topic has lost records. "
                "Delete that topic; it is made and written anew, from this node's state"
            )
        # Between two batches, so that every value is the one at the horizon.
        frozen = self._view().freeze()
        # An empty topic needs every row, also where this view knows of an earlier snapshot.
        rows = frozen.everything() if found is None else frozen.changes()
        horizon = Horizon(
            next_offset=frozen.next_offset,
            digest=to_hex(frozen.digest),
            timestamp_ms=frozen.timestamp_ms,
            writer=self._runtime.core.me,
            epoch=epoch,
            keys=frozen.sums.keys,
            check=frozen.sums.check,
            form=frozen.sums.form,
        )
        began = clock.now()
        await self._in_thread(self._compactor.snapshot, rows, horizon)
        self._view().horizon_reached(horizon.next_offset)
        self._metrics.snapshots.labels("written").inc()
        self._log.info(
            "snapshot.written",
            horizon=horizon.next_offset,
            seconds=round(clock.now() - began, 3),
        )
        await self._trim()

    async def _trim(self) -> None:
        if self._compactor is None:
            return
        archives = dict(self._runtime.view.archives())
        trimmed = await self._in_thread(self._compactor.trim, tuple(archives))
        if trimmed.begins_at not in (None, self._begins_at):
            self._begins_at = trimmed.begins_at
            self._log.info("log.trimmed", log_begins_at=trimmed.begins_at)
        end = self._view().next_offset
        for held in self._archives.looked(clock.now(), end, archives, trimmed.marks):
            self._log.warning(
                "log.held",
                archive=held.archive,
                place=held.place,
                next_offset=held.next_offset,
                behind=held.behind,
                remedy=f"start it again, or `anabranch archive --retire {held.archive}`",
            )

    async def _release(self) -> None:
        compactor, self._compactor = self._compactor, None
        self._archives.forget()
        if compactor is not None:
            await asyncio.to_thread(compactor.close)
