"""`BundleCuts`: finds the bundle that an operator's word means, and the cuts of a bundle by hand.

Topics' traffic comes from their segments' loads, which every node reads, so any node can answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from enum import StrEnum, unique
from typing import Final

from anabranch.broker.errors import NotFoundError, PreconditionError, UnavailableError
from anabranch.broker.runtime import Runtime
from anabranch.core.autoscale.schedule import LoadOf
from anabranch.core.balance.settings import BalanceSettings, SplitAlgorithm, setting_name
from anabranch.core.balance.splitting import TopicLoad, boundaries, hottest_bundle
from anabranch.core.log.state import live_bundles
from anabranch.core.names import Namespace, full_name
from anabranch.core.ring import CUTS_MAX, HashRange, split_bundle_name, topic_hash

_AT_ONCE: Final = 200  # topics looked at before others have their turn


@unique
class BundleWord(StrEnum):
    """An operator's word for a bundle in place of its range; operators write it in capitals."""

    LARGEST = "LARGEST"  # the one with the most scalable topics
    HOT = "HOT"  # the one whose scalable topics have the most traffic


class BundleCuts:
    """One node's cuts, for use in its event loop. `load`: segments' loads, as far as they were
    read.
    """

    def __init__(self, runtime: Runtime, load: LoadOf) -> None:
        self._runtime = runtime
        self._load = load

    @property
    def _settings(self) -> BalanceSettings:
        return self._runtime.core.settings.balance

    async def meant(self, ns: Namespace, word: BundleWord) -> str:
        """The bundle of a namespace that the word stands for.

        Raises NotFoundError where there is none, UnavailableError where loads are not read yet.
        """
        bundles = live_bundles(self._runtime.view, ns)
        ranges = {name: split_bundle_name(name)[1] for name, _ in bundles}
        if word is BundleWord.LARGEST:
            found, lacking = self._largest(ns, ranges), "no scalable topics"
        else:
            found = hottest_bundle(ranges, await self._topics(ns))
            lacking = "no scalable topic with traffic"
        if not found:
            raise NotFoundError(
                f"Bundle range {word.value} not found: {ns} has {lacking}; name a range"
            )
        return found

    async def between_topics(self, unit: str, algorithm: SplitAlgorithm) -> list[int]:
        """Returns the positions at which an algorithm that looks at topics cuts a bundle.

        Raises PreconditionError if it does not, and UnavailableError if loads are not read yet.
        """
        ns, whole = split_bundle_name(unit)
        if algorithm is SplitAlgorithm.TOPIC_COUNT:
            topics = [TopicLoad(at) for at in self._positions(ns)]
        else:
            topics = await self._topics(ns)
        found = boundaries(algorithm, whole, topics, self._settings)
        if not found:
            raise PreconditionError(self._why_not(unit, algorithm, whole, topics))
        if len(found) > CUTS_MAX:
            raise PreconditionError(
                f"{algorithm.value} would cut bundle {unit} into {len(found) + 1} parts, more than "
                f"{CUTS_MAX + 1}: {SplitAlgorithm.TOPIC_COUNT.value} makes two"
            )
        return list(found)

    def _largest(self, ns: Namespace, ranges: dict[str, HashRange]) -> str:
        positions = self._positions(ns)
        counts = {name: sum(at in part for at in positions) for name, part in ranges.items()}
        most = max(counts, key=lambda name: counts[name])
        return most if counts[most] else ""

    def _why_not(
        self, unit: str, algorithm: SplitAlgorithm, whole: HashRange, topics: Sequence[TopicLoad]
    ) -> str:
        halves = f"{SplitAlgorithm.RANGE.value} cuts it in halves"
        inside = [topic for topic in topics if topic.position in whole]
        if len({topic.position for topic in inside}) < 2:
            return (
                f"bundle {unit} has fewer than two scalable topics at different places of the "
                f"ring: {halves}"
            )
        rate = sum(topic.msg_rate for topic in inside)
        flow = sum(topic.msg_throughput for topic in inside)
        return (
            f"{algorithm.value} sees no reason to cut bundle {unit}: its topics have {rate:.0f} "
            f"messages/s and {flow:.0f} bytes/s, and one bundle may have "
            f"{self._settings.namespace_bundle_max_msg_rate:.0f} and "
            f"{self._settings.bundle_max_bandwidth:.0f}, exceeded by "
            f"{self._settings.flow_or_qps_difference_threshold_percentage:g} % "
            f"({setting_name('flow_or_qps_difference_threshold_percentage')}); or all of it is one "
            f"topic's: {halves}"
        )

    def _positions(self, ns: Namespace) -> list[int]:
        """Returns the positions of the namespace's scalable topics on the ring."""
        return [topic_hash(full_name(name)) for name in self._runtime.view.topics(ns)]

    async def _topics(self, ns: Namespace) -> list[TopicLoad]:
        """The namespace's scalable topics with what their active segments take and give out."""
        found = []
        for number, name in enumerate(list(self._runtime.view.topics(ns))):
            if number % _AT_ONCE == _AT_ONCE - 1:
                await asyncio.sleep(0)
            topic = self._runtime.view.topic(name)
            if topic is None:
                continue
            loads = self._load(name, topic.incarnation)
            if loads is None:
                raise UnavailableError(
                    "this node has not read the loads of segments yet: try again in a moment"
                )
            active = [part.segment_id for part in topic.segments if part.is_active]
            rates = [loads[each].rates for each in active if each in loads]
            load = TopicLoad(
                topic_hash(full_name(name)),
                sum(rate_in + rate_out for rate_in, _, rate_out, _ in rates),
                sum(bytes_in + bytes_out for _, bytes_in, _, bytes_out in rates),
            )
            if load.is_sound:
                found.append(load)
        return found
