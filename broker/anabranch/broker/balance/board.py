"""`LoadBoard`: the loads that the other brokers report, as far as they can be believed.

A load counts while its broker has an open session and the load is no older than its time to live,
by the log's clock. An unsound load is counted by its reason, and decides nothing. The board keeps
the unsound load of a known broker, so that the leader sees that this broker has told something.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from enum import StrEnum, unique
from typing import Final

from anabranch.broker.logging import get_logger
from anabranch.broker.runtime import Runtime
from anabranch.channel.load.balance import BrokerLoadChange, TopBundlesChange
from anabranch.core.balance.broker_load import (
    BrokerLoadData,
)
from anabranch.core.balance.bundle_load import TopBundlesLoadData
from anabranch.core.balance.reports import (
    fault_of,
    is_stale,
)
from anabranch.core.balance.settings import BalanceSettings
from anabranch.core.log_rate_limit import LogRateLimit

_APART_S: Final = 60.0  # of lines on the same broker


@unique
class Ignored(StrEnum):
    """Why nothing is decided by a load that was read."""

    UNSOUND = "unsound"  # from ahead, negative, no number
    UNKNOWN_BROKER = "unknown_broker"


class LoadBoard:
    """One node's, for use in its event loop."""

    def __init__(self, runtime: Runtime) -> None:
        self.ignored: Counter[Ignored] = Counter()
        self._runtime = runtime
        self._loads: dict[str, BrokerLoadData] = {}
        self._unsound: set[str] = set()  # of those
        self._top: dict[str, TopBundlesLoadData] = {}
        self._rate_limit = LogRateLimit(_APART_S)
        self._log = get_logger(broker=runtime.core.me)
        runtime.core.load_of = self.of

    @property
    def settings(self) -> BalanceSettings:
        """The balancer's settings of this moment."""
        return self._runtime.core.settings.balance

    def __len__(self) -> int:
        return len(self._loads) - len(self._unsound)

    def take(self, changes: Iterable[BrokerLoadChange]) -> None:
        """Takes changes of the brokers' loads, in the order in which they were read."""
        for broker, record in changes:
            self._loads.pop(broker, None)
            self._unsound.discard(broker)
            if record is None:
                continue
            load = record.load
            fault = fault_of(load, self._runtime.core.log_ms)
            if fault:
                self._ignore(Ignored.UNSOUND, broker, fault)
            if self._runtime.view.session(broker) is not None:
                self._loads[broker] = load
                self._unsound |= {broker} if fault else set()
            elif not fault:
                self._ignore(Ignored.UNKNOWN_BROKER, broker, "no such broker is known")

    def take_top(self, changes: Iterable[TopBundlesChange]) -> None:
        """Takes changes of the top bundles, in the order in which they were read."""
        for broker, record in changes:
            if record is None:
                self._top.pop(broker, None)
            else:
                self._top[broker] = record.load

    def forget_top(self) -> None:
        """Top bundles are read no more: this node does not lead."""
        self._top = {}

    def _ignore(self, reason: Ignored, broker: str, why: str) -> None:
        self.ignored[reason] += 1
        if self._rate_limit.due((reason, broker), self._runtime.now()):
            self._log.warning("balance.load_ignored", of=broker, why=why)

    def of(self, broker: str) -> BrokerLoadData | None:
        """Returns the load to decide by; None for a broker whose load is unknown, unsound or out of
        date.
        """
        known = self._loads.get(broker)
        if known is None or broker in self._unsound:
            return None
        return None if is_stale(known, self.settings, self._runtime.core.log_ms) else known

    def known(self) -> dict[str, BrokerLoadData]:
        """All that were read and not taken away, out of date or not, unsound or not."""
        return dict(self._loads)

    def top(self) -> dict[str, TopBundlesLoadData]:
        """Top bundles that are not out of date; only the leader has any."""
        oldest = self._runtime.core.log_ms - self.settings.broker_load_data_ttl_in_seconds * 1000
        return {b: each for b, each in self._top.items() if each.updated_at_ms >= oldest}

    def out_of_date(self) -> tuple[list[str], list[str]]:
        """Brokers whose load the leader is to take away, and those whose report of bundles."""
        oldest = self._runtime.core.log_ms - self.settings.broker_load_data_ttl_in_seconds * 1000

        def gone(stamps: Iterable[tuple[str, int]]) -> list[str]:
            return sorted(b for b, at_ms in stamps if at_ms < oldest or not self._takes_part(b))

        return (
            gone((broker, each.updated_at_ms) for broker, each in self._loads.items()),
            gone((broker, each.updated_at_ms) for broker, each in self._top.items()),
        )

    def _takes_part(self, broker: str) -> bool:
        session = self._runtime.view.session(broker)
        return session is not None and session.open
