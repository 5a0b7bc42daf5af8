"""The demo's changes of a topic's segments while it is used: splits, merges, rebuckets."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final

import httpx
import msgspec

from anabranch.core.entities.layout import SegmentLayout
from anabranch.core.names import full_name
from anabranch.devkit.demo.reach import OPEN, Reach, checked
from anabranch.devkit.nodes import NodeAddress

_SECONDS_MAX: Final = 30.0
_PAUSE_SECONDS: Final = 1.2  # between two changes
_POLL_SECONDS: Final = 0.2
# A crash meets a change so long after it was asked for, which is within or between its steps.
_CRASH_AFTER_SECONDS: Final = (0.004, 0.05)
_ACTIVE_MAX: Final = 8
_BUCKETS: Final = (1, 2, 3, 4)
_SPLIT_SHARE: Final = 0.6
_REBUCKET_SHARE: Final = 0.15


class Change(msgspec.Struct, frozen=True):
    """A change to ask for: which one, of which segments, and the request's path and query."""

    kind: str
    segments: tuple[int, ...]
    path: str

    def __str__(self) -> str:
        return f"{self.kind} of segment {' and '.join(map(str, self.segments))}"


def choose(layout: SegmentLayout, dice: random.Random) -> Change:
    """A change that the layout allows; few segments tend to be split, many to be merged."""
    active = layout.active
    if dice.random() < _REBUCKET_SHARE:
        part = dice.choice(active)
        buckets = dice.choice([each for each in _BUCKETS if each != part.buckets])
        path = f"rebucket/{part.segment_id}?bucketCount={buckets}"
        return Change("rebucket", (part.segment_id,), path)
    splittable = [part for part in active if part.size > 1]
    may_split = splittable and len(active) < _ACTIVE_MAX
    if may_split and (len(active) < 2 or dice.random() < _SPLIT_SHARE):
        part = dice.choice(splittable)
        return Change("split", (part.segment_id,), f"split/{part.segment_id}")
    first = dice.randrange(len(active) - 1)
    ids = active[first].segment_id, active[first + 1].segment_id
    return Change("merge", ids, f"merge/{ids[0]}/{ids[1]}")


class PendingChange(msgspec.Struct, frozen=True):
    """A change that was asked for and has not been answered."""

    change: Change
    asked: asyncio.Task[None]


class Reshaping:
    """Asks for one change after the other, at any node, until it is cancelled."""

    def __init__(
        self,
        topic: str,
        serving: Sequence[NodeAddress],
        say: Callable[[str], None],
        reach: Reach = OPEN,
    ) -> None:
        self.done_ms: list[float] = []
        self.kinds: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()  # by reason: there was no controller, mostly
        self.changing = asyncio.Lock()  # held while a change is asked for
        self._path = f"/admin/v2/scalable/{topic}"
        self._lookup = f"/lookup/v2/topic/topic/{topic}"
        self._topic = topic
        self._serving = serving  # changes as nodes come and go
        self._say = say
        self._dice = random.Random(11)  # the same choices each time
        urls = tuple(node.url for node in serving)
        self._http = reach.http(urls, timeout=_SECONDS_MAX, follow_redirects=True)

    async def close(self) -> None:
        """Ends the connections."""
        await self._http.aclose()

    async def create(self, segments: int) -> None:
        """Makes the topic. Raises RefusedError."""
        url = self._serving[0].url + self._path
        checked(await self._http.put(url, params={"numInitialSegments": segments}))
        # Only what is asked for here: another topic shows what happens by itself.
        checked(await self._http.post(f"{url}/autoScalePolicy", json={"enabled": False}))
        self._say(f"created {full_name(self._topic)} with {segments} segments")

    async def run(self) -> None:
        """Changes the layout for ever."""
        while True:
            await self.change()
            await asyncio.sleep(_PAUSE_SECONDS)

    async def change(self) -> None:
        """One change to its end, said with its duration; what is refused is counted."""
        try:
            async with self.changing:
                wanted = choose(await self.layout(), self._dice)
                began = time.monotonic()
                await self._post(wanted)
        except (httpx.HTTPError, ChangeRefusedError) as error:
            reason = error.reason if isinstance(error, ChangeRefusedError) else type(error).__name__
            self.refused[reason] += 1
            return
        took_ms = (time.monotonic() - began) * 1000
        self.done_ms.append(took_ms)
        self.kinds[wanted.kind] += 1
        self._say(f"{wanted} in {took_ms:.0f} ms")

    async def begin(self) -> PendingChange:
        """A change under way, for a crash to meet; its answer is not expected."""
        wanted = choose(await self.layout(), self._dice)

        async def post() -> None:
            with contextlib.suppress(httpx.HTTPError, ChangeRefusedError):
                await self._post(wanted)

        asked = asyncio.create_task(post())
        await asyncio.sleep(self._dice.uniform(*_CRASH_AFTER_SECONDS))
        return PendingChange(wanted, asked)

    async def finished(self, begun: PendingChange) -> None:
        """Says what the next controller made of a change that met a crash."""
        await begun.asked
        deadline = time.monotonic() + _SECONDS_MAX
        while time.monotonic() < deadline:
            with contextlib.suppress(httpx.HTTPError):
                found = await self.stats()
                if found["operation"] == "NONE":
                    segment = str(begun.change.segments[0])
                    sealed = found["segments"][segment]["state"] == "SEALED"
                    how = "completed" if sealed else "not begun, or given up"
                    self._say(f"the {begun.change} that met the crash was {how}")
                    return
            await asyncio.sleep(_POLL_SECONDS)
        raise ChangeRefusedError(f"the {begun.change} that met a crash was not finished in time")

    async def stats(self) -> dict[str, Any]:
        """What the topic's controller says of it."""
        answer = await self._http.get(f"{self._dice.choice(self._serving).url}{self._path}/stats")
        answer.raise_for_status()
        found: dict[str, Any] = answer.json()
        return found

    async def controller(self) -> str:
        """The broker id of the topic's controller."""
        answer = await self._http.get(self._serving[0].url + self._lookup)
        answer.raise_for_status()
        found: str = answer.json()["httpUrl"]
        return found.removeprefix("http://")

    async def layout(self) -> SegmentLayout:
        """The newest layout that a node has."""
        answer = await self._http.get(self._dice.choice(self._serving).url + self._path)
        answer.raise_for_status()
        found: dict[str, Any] = answer.json()
        return SegmentLayout.from_metadata(found)

    async def _post(self, change: Change) -> None:
        url = f"{self._dice.choice(self._serving).url}{self._path}/{change.path}"
        answer = await self._http.post(url)
        if not answer.is_success:
            raise ChangeRefusedError(str(answer.status_code), f"{change}: {answer.text[:200]}")


class ChangeRefusedError(Exception):
    """A node refused a change; `reason` is short, for counting."""

    def __init__(self, reason: str, told: str = "") -> None:
        super().__init__(told or reason)
        self.reason = reason
