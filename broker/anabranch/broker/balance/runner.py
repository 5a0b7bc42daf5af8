"""`BalanceRunner`: has core decide when a cycle is due, does it, and says why in the log.

The leader's cycles unload bundles, and each owner's cycles split its own (PIP-192). Decisions are
core's, and so is the state between two cycles (`core.balancer`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from anabranch.broker.balance.board import LoadBoard
from anabranch.broker.balance.counts import BalanceCounts
from anabranch.broker.logging import get_logger
from anabranch.broker.runtime import Runtime
from anabranch.core.balance.bundle_load import BundleLoad
from anabranch.core.balance.shedding import Round
from anabranch.core.balance.splitting import SplitRound, TopicLoad
from anabranch.core.balance.strategies import StrategyKind
from anabranch.core.balancer import Balancer
from anabranch.core.log.records import UnitMove

_LOOK_S: Final = 0.5  # between two looks whether a cycle is due


class BalanceRunner:
    """One node's. `ticked` is called about every tenth of a second, in the event loop.

    `bundles`: the loads of this node's own bundles; `topics`: those of a bundle.
    """

    def __init__(
        self,
        runtime: Runtime,
        board: LoadBoard,
        counts: BalanceCounts,
        bundles: Callable[[], Mapping[str, BundleLoad]],
        topics: Callable[[str], Sequence[TopicLoad]],
    ) -> None:
        self.last_round: Round | None = None  # of this node as the leader
        self._runtime = runtime
        self._core = Balancer(runtime.core, runtime.proposals.new_id)
        self._board = board
        self._counts = counts
        self._bundles = bundles
        self._topics = topics
        self._look_at = runtime.now()
        self._faults: dict[StrategyKind, str] = {}  # of strategies, that were told
        self._told = ""  # why the last round did nothing
        self._log = get_logger(broker=runtime.core.me)

    def ticked(self) -> None:
        """Time has passed."""
        now = self._runtime.now()
        if now < self._look_at or not self._runtime.has_lease:
            return
        self._look_at = now + _LOOK_S
        shed, records = self._core.shed(self._board.known(), self._board.top(), now)
        self._propose(records)
        if shed is not None:
            self._shed(shed)
        split, records = self._core.split(self._bundles(), self._topics, now)
        self._propose(records)
        if split is not None:
            self._split(split)
        self._tell_faults(self._runtime.core.balance.strategies.faults)

    def _tell_faults(self, faults: Mapping[StrategyKind, str]) -> None:
        """Names strategies that did not decide; again once they have, or why not is another."""
        for kind, why in faults.items():
            if why and self._faults.get(kind) != why:
                name = kind.named_in(self._board.settings)
                self._log.warning(
                    "balance.strategy_failed", strategy=name, setting=kind.setting, why=why
                )
        self._faults = dict(faults)

    def _propose(self, records: Iterable[UnitMove]) -> None:
        """Proposes moves and waits for no verdict: the log tells it, and lost ones are decided
        anew.
        """
        proposed = list(records)
        if proposed:
            self._runtime.proposals.send(proposed)

    def _shed(self, found: Round) -> None:
        self.last_round = found
        self._counts.shed(found.counted, found.average, found.std)
        for each in found.decisions:
            self._log.info(
                "balance.unload",
                bundle=each.bundle,
                source=each.source,
                destination=each.destination,
                reason=each.reason.value,
                deviation=round(each.std_before, 4),
                predicted=round(each.std_after, 4),
                thresholds=found.thresholds,
                strategy=found.strategy,
            )
        why = found.ended.value
        if not found.decisions and (self._board.settings.debug_mode_enabled or why != self._told):
            skipped = found.skipped.value if found.skipped is not None else ""
            self._log.info("balance.nothing_to_unload", why=why, reason=skipped, hits=found.hits)
        self._told = why

    def _split(self, found: SplitRound) -> None:
        for each in found.decisions:
            self._log.info(
                "balance.split",
                bundle=each.bundle,
                reason=each.reason.value,
                why=each.why,
                thresholds=found.thresholds,
                strategy=found.strategy,
            )
        for bundle, why in found.failed:
            self._counts.split_failed()
            self._log.warning("balance.split_failed", bundle=bundle, why=why)
        if self._board.settings.debug_mode_enabled:
            for bundle, why in found.waiting:
                self._log.info("balance.split_waits", bundle=bundle, why=why)
