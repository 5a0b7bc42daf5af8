"""`BalanceReporter`: measures this node, and tells the others when it has changed much.

Its load goes to every node, its top bundles to the leader (PIP-192, "Load Data Write-Read Flow"). A
bundle that came, went or was split makes the last measurement wrong: then the load is taken away,
and measured anew. The loads of all bundles stay here, for splits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Protocol

from anabranch.broker.balance.board import LoadBoard
from anabranch.broker.runtime import Runtime
from anabranch.channel.balance_records import (
    BrokerLoadRecord,
    TopBundlesRecord,
    broker_load_record,
    top_bundles_record,
)
from anabranch.core.balance.broker_load import BrokerLoadData, Resources
from anabranch.core.balance.bundle_load import BundleLoad
from anabranch.core.balance.reports import BrokerReports
from anabranch.core.entities.unit import LEADERSHIP, Move
from anabranch.core.log.outcome import Folded
from anabranch.core.log.records import UnitMove
from anabranch.core.log.verdicts import Verdict

_READ_BACK_MS: Final = 10_000  # within which a report is read by all, its sender too
_CAME_OR_WENT = (Move.OWN, Move.HAND_OVER, Move.FREE, Move.SPLIT_COMMIT)


class BrokerLoadOutbox(Protocol):
    """Takes loads to be written: `channel.load.balance.KafkaBrokerLoads`, or its double."""

    def write(self, records: Mapping[str, BrokerLoadRecord | None]) -> None: ...


class TopBundlesOutbox(Protocol):
    """Takes top bundles to be written (`KafkaTopBundles`); `follows`: they are read as well."""

    follows: bool

    def write(self, records: Mapping[str, TopBundlesRecord | None]) -> None: ...


class MeasureBundles(Protocol):
    """`BundleMeter.read`, or its double."""

    async def __call__(self) -> dict[str, BundleLoad]: ...


class BalanceReporter:
    """One node's. `run` until it is cancelled; for use in the event loop.

    `measure_node` is called in a thread.
    """

    def __init__(
        self,
        runtime: Runtime,
        board: LoadBoard,
        measure_node: Callable[[], Resources],
        measure_bundles: MeasureBundles,
        loads: BrokerLoadOutbox,
        top: TopBundlesOutbox,
        interval_s: float,
    ) -> None:
        self.bundles: dict[str, BundleLoad] = {}
        self.reports = 0
        self._runtime = runtime
        self._board = board
        self._measure_node = measure_node
        self._measure_bundles = measure_bundles
        self._loads = loads
        self._top = top
        self.interval_s = interval_s  # its owner may change it
        self._told = BrokerReports(board.settings)
        runtime.listeners.append(self._folded)

    @property
    def load(self) -> BrokerLoadData:
        """The load that was measured last."""
        return self._told.load

    async def run(self) -> None:
        """Measures until it is cancelled. The first interval has what starting takes: no load."""
        await asyncio.sleep(self.interval_s)
        await asyncio.to_thread(self._measure_node)
        while True:
            await asyncio.sleep(self.interval_s)
            await self.round()

    async def round(self) -> None:
        """Measures once, and writes the reports that are due."""
        self._told.settings = self._board.settings
        resources = await asyncio.to_thread(self._measure_node)
        self.bundles = await self._measure_bundles()
        if not self._runtime.has_lease:
            return
        now_ms = self._runtime.core.log_ms
        me = self._runtime.core.me
        if self._is_taken_away(now_ms):
            self._told.taken_away()
        gave_at_ms = self._runtime.core.balance.gave_at_ms(me)
        load = self._told.measured(resources, self.bundles, now_ms, gave_at_ms)
        if load is not None:
            self.reports += 1
            self._loads.write({me: broker_load_record(load)})
        top = self._told.top(self.bundles, self._runtime.core.policies(), now_ms)
        if top is not None:
            self._top.write({me: top_bundles_record(top)})
        self._lead()

    def _is_taken_away(self, now_ms: int) -> bool:
        """True if the leader has removed this node's report because its session was over."""
        told_ms = self._told.reported.reported_at_ms
        known = self._board.of(self._runtime.core.me) is not None
        return 0 < told_ms < now_ms - _READ_BACK_MS and not known

    def _lead(self) -> None:
        """Reads the top bundles as the leader, and takes away reports that are out of date."""
        leads = self._runtime.core.is_leader()
        if self._top.follows and not leads:
            self._board.forget_top()
        self._top.follows = leads
        if leads:
            loads, top = self._board.out_of_date()
            self._loads.write(dict.fromkeys(loads))
            self._top.write(dict.fromkeys(top))

    def _folded(self, entries: Iterable[Folded]) -> None:
        me = self._runtime.core.me
        for entry in entries:
            record = entry.record
            if (
                isinstance(record, UnitMove)
                and record.actor == me
                and record.move in _CAME_OR_WENT
                and record.unit != LEADERSHIP
                and entry.outcome.verdict is Verdict.ACCEPTED
            ):
                is_split = record.move is Move.SPLIT_COMMIT
                changes = entry.outcome.changes if is_split else ()
                self._told.changed_hands(k for k, unit in changes if k != record.unit and unit)
