"""What an operator does meanwhile, one operation after the other."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Collection
from enum import Enum
from typing import Final

from anabranch.admin import AdminError, AsyncAdmin, ConflictError
from faults.history import History
from faults.parts import NAMESPACE, TOPIC

OPERATION_S: Final = 4.0  # from one operation to the next, about
AGAIN_S: Final = 0.5
SEGMENTS: Final = (2, 6)  # fewer are split, more are merged
BUCKETS: Final = 6  # of a segment, at most
BUNDLES: Final = 12  # of the namespace, at most


class Operation(Enum):
    """What is done."""

    RESHAPE = "a segment is split, or two are merged"
    REBUCKET = "a segment gets another number of buckets"
    UNLOAD = "a bundle is taken from its owner"
    TRANSFER = "a bundle is given to another node"
    SPLIT_BUNDLE = "a bundle is cut in two"


CHANCES: Final = {
    Operation.RESHAPE: 50,
    Operation.REBUCKET: 15,
    Operation.UNLOAD: 10,
    Operation.TRANSFER: 15,
    Operation.SPLIT_BUNDLE: 3,
}


class Operator:
    """`seed` decides what is done, as far as layout and bundles allow. `kinds`: only these."""

    def __init__(
        self, admin: AsyncAdmin, history: History, seed: int, kinds: Collection[Operation] = CHANCES
    ) -> None:
        self._kinds = list(kinds)
        self._admin = admin
        self._history = history
        self._random = random.Random(seed)
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        self._stopping.set()

    async def run(self) -> None:
        await self._create()
        self._history.say("ready")
        while not self._stopping.is_set():
            await asyncio.sleep(self._random.uniform(0.5, 1.5) * OPERATION_S)
            kind = self._random.choices(self._kinds, [CHANCES[each] for each in self._kinds])[0]
            try:
                await self._operate(kind)
                self._history.say("operated")
            except AdminError as error:
                self._history.say("not_operated", why=str(error))

    async def _create(self) -> None:
        while True:
            try:
                await self._admin.scalable_topics.create_scalable_topic(TOPIC, 2)
                return
            except ConflictError:
                return  # by this process, before it was killed
            except AdminError as error:
                self._history.say("again", why=str(error))
                await asyncio.sleep(AGAIN_S)

    def _operate(self, kind: Operation) -> Awaitable[None]:
        match kind:
            case Operation.RESHAPE:
                return self._reshape()
            case Operation.REBUCKET:
                return self._rebucket()
            case Operation.UNLOAD | Operation.TRANSFER:
                return self._move_bundle(is_given=kind is Operation.TRANSFER)
            case Operation.SPLIT_BUNDLE:
                return self._split_bundle()

    def _say(self, what: str, *of: object) -> None:
        self._history.say("operation", kind=what, of=of)

    # --- the topic ------------------------------------------------------------------------

    async def _active(self) -> list[int]:
        """Its active segments, in the order of the ring."""
        layout = await self._admin.scalable_topics.get_metadata(TOPIC)
        active = [part for part in layout.segments.values() if part.active]
        return [each.segment_id for each in sorted(active, key=lambda each: each.hash_range.start)]

    async def _reshape(self) -> None:
        topics = self._admin.scalable_topics
        active = await self._active()
        fewest, most = SEGMENTS
        if len(active) < fewest or (len(active) < most and self._random.random() < 0.5):
            chosen = self._random.choice(active)
            self._say("split", chosen)
            await topics.split_segment(TOPIC, chosen)
        else:
            at = self._random.randrange(len(active) - 1)
            self._say("merge", *active[at : at + 2])
            await topics.merge_segments(TOPIC, active[at], active[at + 1])

    async def _rebucket(self) -> None:
        chosen = self._random.choice(await self._active())
        buckets = self._random.randint(1, BUCKETS)
        self._say("rebucket", chosen, buckets)
        await self._admin.scalable_topics.rebucket_segment(TOPIC, chosen, buckets)

    # --- bundles --------------------------------------------------------------------------

    async def _move_bundle(self, *, is_given: bool) -> None:
        chosen = self._random.choice((await self._admin.bundles.get_ownership(NAMESPACE)).bundles)
        others = [
            each for each in await self._admin.brokers.get_active_brokers() if each != chosen.broker
        ]
        to = self._random.choice(others) if is_given and others else ""
        self._say("transfer" if to else "unload", chosen.bundle, chosen.broker, to)
        await self._admin.bundles.unload_bundle(NAMESPACE, chosen.bundle, to)

    async def _split_bundle(self) -> None:
        bundles = (await self._admin.bundles.get_ownership(NAMESPACE)).bundles
        if len(bundles) < BUNDLES:
            chosen = self._random.choice(bundles).bundle
            self._say("split bundle", chosen)
            await self._admin.bundles.split_bundle(NAMESPACE, chosen)
