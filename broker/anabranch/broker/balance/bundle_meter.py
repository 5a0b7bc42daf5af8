"""`BundleMeter`: the load of each bundle that this node owns.

Messages never pass through a node. So a bundle's rates are those of its topics' segments, which
this node measures as their controller (`broker.load`). Producers are the clients that have told how
much they write; consumers are those that are connected.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from typing import Final

from anabranch.broker.load.inventory import MeasuredTopic
from anabranch.broker.load.traffic import TrafficReports
from anabranch.broker.topics.controllers.service import TopicService
from anabranch.channel.load.loads import LoadTable
from anabranch.core.balance.bundle_load import BundleLoad
from anabranch.core.balance.splitting import TopicLoad
from anabranch.core.bundles.guards import controller_of
from anabranch.core.entities.unit import LEADERSHIP
from anabranch.core.names import full_name
from anabranch.core.ring import topic_hash

_AT_ONCE: Final = 200  # topics looked at before others have their turn


_Sum = dict[str, float]  # by the fields of `BundleLoad`


class BundleMeter:
    """One node's, for use in its event loop. `measured`: the topics that this node controls."""

    def __init__(
        self,
        service: TopicService,
        measured: Callable[[], Mapping[str, MeasuredTopic]],
        table: LoadTable,
        reports: TrafficReports,
    ) -> None:
        self._service = service
        self._runtime = service.runtime
        self._measured = measured
        self._table = table
        self._reports = reports
        self._homes: dict[str, str] = {}  # the bundle of each topic, as long as it is here

    async def read(self) -> dict[str, BundleLoad]:
        """The load of every bundle that this node owns."""
        sums: dict[str, _Sum] = {
            name: defaultdict(int) for name in self._runtime.core.serving if name != LEADERSHIP
        }
        self._homes = {name: home for name, home in self._homes.items() if home in sums}
        consumers = Counter(each.topic for each in self._service.consumers.values())
        for number, (name, topic) in enumerate(list(self._measured().items())):
            found = sums.get(self._home(name))
            if found is not None:
                found["topics"] += 1
                found["consumers"] += consumers[name]
                found["producers"] += self._reports.producers(name, topic.incarnation)
                self._add_rates(found, name, topic)
            if number % _AT_ONCE == _AT_ONCE - 1:
                await asyncio.sleep(0)
        return {name: BundleLoad(**each) for name, each in sums.items()}  # type: ignore[arg-type]

    def topics(self, bundle: str) -> list[TopicLoad]:
        """The topics of a bundle that this node owns, as they were at the last call of `read`."""
        found = []
        for name, home in self._homes.items():
            topic = self._measured().get(name)
            if home == bundle and topic is not None:
                rates: _Sum = defaultdict(int)
                self._add_rates(rates, name, topic)
                found.append(
                    TopicLoad(
                        topic_hash(full_name(name)),
                        rates["msg_rate_in"] + rates["msg_rate_out"],
                        rates["msg_throughput_in"] + rates["msg_throughput_out"],
                    )
                )
        return found

    def _home(self, name: str) -> str:
        home = self._homes.get(name)
        if home is None:
            home, holder = controller_of(self._runtime.view, name)
            if holder != self._runtime.core.me:
                return ""
            self._homes[name] = home
        return home

    def _add_rates(self, found: _Sum, name: str, topic: MeasuredTopic) -> None:
        loads = self._table.segments(name, topic.incarnation)
        for segment_id in topic.segments:
            load = loads.get(segment_id)
            if load is not None:
                found["msg_rate_in"] += load.msg_rate_in
                found["msg_rate_out"] += load.msg_rate_out
                found["msg_throughput_in"] += load.bytes_rate_in
                found["msg_throughput_out"] += load.bytes_rate_out
