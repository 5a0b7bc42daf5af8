"""`ConsumerResources`: the parts of a consumer that it may share with those of other topics."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, Protocol

from anabranch.client._consumer.assignment import Fetch, Partition
from anabranch.client._consumer.core import KEEP_ALIVES
from anabranch.client._consumer.data_plane import DataPlane
from anabranch.client._consumer.group_offsets import Answers, GroupOffsets, Position
from anabranch.client._consumer.reads import Read, ReadTrouble
from anabranch.client._settings import ReadSettings


class Plane(Protocol):
    """The interface to the reader of a consumer's buckets. `DataPlane` describes it."""

    waiting_max: int

    def start(self, fetch: Fetch, offset: int) -> None: ...
    def stop(self, number: int) -> None: ...
    def take(self) -> Read | None: ...
    async def warm(self, topics: Iterable[str]) -> None: ...
    async def close(self) -> None: ...


class Offsets(Protocol):
    """The interface to a group's offsets. `GroupOffsets` describes it."""

    async def committed(self, partitions: Iterable[Partition]) -> Answers[Position]: ...
    async def ranges(self, partitions: Iterable[Partition]) -> Answers[tuple[int, int]]: ...
    async def commit(
        self, positions: Mapping[Partition, Position], until: float
    ) -> Answers[int]: ...
    def close(self) -> None: ...


class ConsumerResources:
    """The parts of a consumer that shares nothing."""

    keep_alives: float = KEEP_ALIVES
    look_s: float = 0.5  # between two looks at whether the event loop runs

    def numbers(self) -> Iterator[int] | None:
        """Returns the numbers for fetches, None for numbers of its own."""
        return None

    def plane(
        self,
        kafka: Mapping[str, Any],
        settings: ReadSettings,
        on_read: Callable[[], None],
        trouble: ReadTrouble,
        *,
        skips_gone: bool,
        partitions: int,
    ) -> Plane:
        """Returns a reader, which has `partitions` partitions at first.
        The other arguments are those of `DataPlane`.
        """
        del partitions
        return DataPlane(kafka, settings, on_read, trouble, skips_gone=skips_gone)

    def offsets(self, kafka: Mapping[str, Any], session_s: float, mark: str) -> Offsets:
        """Returns the committer. The arguments are those of `GroupOffsets`."""
        return GroupOffsets(kafka, session_s, mark)


OWN: Final = ConsumerResources()
