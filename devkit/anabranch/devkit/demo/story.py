"""The demo's story up to the audit: a topic splits, goes on, merges, and loses nothing."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Final, Self

import msgspec

from anabranch.admin import (
    AsyncAdmin,
    UnavailableError,
    UnknownOutcomeError,
    UnreachableError,
)
from anabranch.admin.scalable_models import AutoScaleOverride, Decision, TopicStats
from anabranch.cli.topics.dag import draw, fitting
from anabranch.core.entities.layout import SegmentLayout
from anabranch.core.errors import AnabranchError
from anabranch.core.names import full_name
from anabranch.devkit.demo.narrator import Narrator
from anabranch.devkit.demo.traffic import Reach, Traffic, load_keys
from anabranch.devkit.nodes import MEASURES

# A minute of the defaults is a second or so here, and a thousand messages a few.
SETTINGS: Final = (*MEASURES, "scalableTopicAutoScaleIntervalSeconds=0.5")
SEGMENTS_MAX: Final = 3
POLICY: Final = AutoScaleOverride(
    maxSegments=SEGMENTS_MAX,
    splitCooldownSeconds=1.5,
    rebucketCooldownSeconds=1.5,
    mergeCooldownSeconds=1.5,
    mergeWindowSeconds=3,
    splitMsgRateInThreshold=60,
    mergeMsgRateInThreshold=15,
    splitVsRebucketMinMsgRateInThreshold=1_000,  # load alone is to split it
)
LOW_RATE: Final = 5.0  # messages a second
HIGH_RATE: Final = 300.0
STEP_S_MAX: Final = 90.0  # many times what a step takes
_POLL_S: Final = 0.1
_TENANT: Final = "demo"
HOME: Final = f"{_TENANT}/openstack"
_BUNDLES: Final = 4
_FAILED_SHOWN: Final = 5
# A node that is asked for a topic whose controller has just been killed answers so.
_FOR_NOW: Final = (UnavailableError, UnknownOutcomeError, UnreachableError)


class BrokenPromiseError(AnabranchError):
    """Something that the demo shows did not come about."""


class Story:
    """One topic and its load, on a cluster that serves. To be closed, which ends its clients."""

    def __init__(self, name: str, reach: Reach, narrator: Narrator) -> None:
        self.topic = full_name(f"{HOME}/{name}")
        self.admin = AsyncAdmin(reach.urls)
        self.traffic = Traffic(reach, self.topic, load_keys(), LOW_RATE)
        self._narrator = narrator
        self._told: set[Decision] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.traffic.close()
        await self.admin.close()

    async def begin(self) -> None:
        """Makes the topic, with one segment, and starts producers and consumers."""
        await self.make_home()
        await self.admin.scalable_topics.create_scalable_topic(self.topic)
        await self.admin.scalable_topics.set_auto_scale_policy(self.topic, POLICY)
        self._narrator.say(f"{self.topic} has 1 segment; no request changes it from here on")
        await self.traffic.start()
        self._narrator.say(
            "2 producers send OpenStack's merge history, with projects as keys; 2 queue workers "
            "receive it, and 2 readers, which work on keys side by side, 20 ms for each message"
        )

    async def make_home(self) -> None:
        """Makes the topic's tenant and namespace."""
        tenants = self.admin.tenants
        await tenants.create_tenant(_TENANT, await tenants.get_clusters())
        await self.admin.namespaces.create_namespace(HOME, _BUNDLES)

    async def split(self, segments: int) -> None:
        """Raises the load; returns when there are so many segments or more."""
        self._narrator.step("split", "A topic splits under load")
        self.traffic.rate = HIGH_RATE
        self._narrator.say(
            f"the load rises from {LOW_RATE:.0f} to {HIGH_RATE:.0f} messages a second"
        )
        await self._scaled(
            lambda seen: seen.active_segments >= segments, "the topic does not split"
        )

    async def merge(self) -> None:
        """Takes the load away; returns when there is one segment again."""
        self._narrator.step("merge", "The topic merges when the load is gone")
        self.traffic.rate = LOW_RATE
        self._narrator.say(f"the load falls to {LOW_RATE:.0f} messages a second")
        await self._scaled(lambda seen: seen.active_segments == 1, "the topic does not merge")
        found = await self.admin.scalable_topics.get_metadata(self.topic)
        layout = SegmentLayout.from_metadata(msgspec.to_builtins(found, str_keys=True))
        self._narrator.say(f"its {len(layout.segments)} segments, from the first to the last:\n")
        self._narrator.show(fitting(draw(layout), sys.stdout.encoding).splitlines())

    async def judge(self) -> bool:
        """Tells whether each acknowledged message arrived everywhere, once and in key order."""
        self._narrator.step(
            "messages", "No message is lost, none comes twice, and each key keeps its order"
        )
        traffic = self.traffic
        await traffic.stop_sending()

        async def has_arrived() -> bool:
            return traffic.has_arrived

        with contextlib.suppress(BrokenPromiseError):  # the judge names what is missing
            await self._until(has_arrived, "")
        found = traffic.judged()
        keys = len({message.key for message in traffic.sent})
        self._narrator.say(
            f"{len(traffic.sent):,} messages of {keys} keys were acknowledged; a judge, which asks "
            "no node, compares what arrived:"
        )
        for place, findings in found.items():
            first, *wrong = findings.lines()
            self._narrator.show([f"{place:<20} {first}", *wrong])
        self._narrator.show(f"  WRONG: not sent: {each}" for each in traffic.failed[:_FAILED_SHOWN])
        return not traffic.failed and all(each.sound for each in found.values())

    async def controller(self) -> str:
        """The URL of the node that controls the topic."""
        found = await self.admin.lookups.lookup_topic(self.topic)
        return found.http_url or found.http_url_tls or ""

    async def successor(self, url: str) -> str:
        """The URL of the topic's controller, once that is not `url`, and answers.

        Raises BrokenPromiseError after a step's time.
        """
        found = url

        async def is_another() -> bool:
            nonlocal found
            found = await self.controller()
            if found == url:
                return False
            await self._look()  # raises while nobody controls it
            return True

        await self._until(is_another, "no other node takes over")
        return found

    async def _scaled(self, holds: Callable[[TopicStats], bool], unless: str) -> None:
        """Returns when no change is under way and the topic's statistics are so.

        Raises BrokenPromiseError, which says `unless`, after a step's time.
        """

        async def has_scaled() -> bool:
            seen = await self._look()
            return seen.operation == "NONE" and holds(seen)

        await self._until(has_scaled, unless)

    async def _look(self) -> TopicStats:
        """The topic's statistics; tells the decisions that are new."""
        seen = await self.admin.scalable_topics.get_stats(self.topic)
        for each in reversed(seen.auto_scale.decisions):
            if each not in self._told and each.action != "none":
                self._narrator.say(f"decision: {each.action}, because {each.why}")
            self._told.add(each)
        return seen

    async def _until(self, holds: Callable[[], Awaitable[bool]], unless: str) -> None:
        deadline_s = time.monotonic() + STEP_S_MAX
        while True:
            self.traffic.raise_fault()
            with contextlib.suppress(*_FOR_NOW):
                if await holds():
                    return
            if time.monotonic() > deadline_s:
                raise BrokenPromiseError(f"{unless} in {STEP_S_MAX:.0f} s")
            await asyncio.sleep(_POLL_S)
