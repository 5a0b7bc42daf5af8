"""The demo on a cluster that runs already: nothing is killed, and its own audit judges it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

import msgspec

from anabranch.channel.kafka.topics import check_kafka
from anabranch.cli.shared.access import Access
from anabranch.cli.topics.sdk import service_urls, telling_refusals
from anabranch.devkit.demo.narrator import Narrator
from anabranch.devkit.demo.reach import Reach
from anabranch.devkit.demo.story import SEGMENTS_MAX, BrokenPromiseError, Story

_KNOCK_S_MAX: Final = 10.0
# By default a cluster looks at loads once a minute, as the average of a minute.
_STEP_S_MAX: Final = 600.0


class GivenClusterDemo:
    """One run; its topic has a name of its own, so that the next run does not meet it.

    `urls` names nodes with commas, `who` says as whom they are asked, and `kafka_security` holds
    librdkafka's properties. Raises InvalidInputError.
    """

    def __init__(
        self,
        urls: str,
        bootstrap_servers: str,
        who: Access,
        kafka_security: Mapping[str, str],
        narrator: Narrator,
    ) -> None:
        self._narrator = narrator
        self._who = who
        self._reach = Reach(
            urls, "", bootstrap_servers, who.tls(), who.credentials(), kafka_security
        )

    def run(self) -> int:
        """The exit status: 0 if each message arrived once and in order, and the topic scaled.

        Raises AnabranchError where it cannot begin, or go on, CommandRefusedError where who asks
        has no right to it.
        """
        check_kafka(self._reach.kafka(), _KNOCK_S_MAX)
        found = service_urls(self._reach.urls.split(","), self._who)
        reach = msgspec.structs.replace(self._reach, service_url=found)
        self._narrator.step("begin", "A topic on a cluster that runs already")
        self._narrator.say(f"clients connect to {found}")
        self._narrator.say("with the default settings of a cluster, each change takes minutes")
        try:
            with telling_refusals():
                arrived = asyncio.run(self._tell(reach))
        except BrokenPromiseError as error:
            self._narrator.end(f"a promise is BROKEN: {error}")
            return 1
        how = "once and in its key's order" if arrived else "NOT as it should"
        self._narrator.end(f"every message arrived {how}")
        return 0 if arrived else 1

    async def _tell(self, reach: Reach) -> bool:
        run = f"{datetime.now(UTC):%Y%m%d-%H%M%S}"
        async with Story(f"merges-{run}", reach, self._narrator, _STEP_S_MAX) as story:
            await story.begin()
            await story.split(SEGMENTS_MAX)
            await story.merge()
            return await story.judge()
