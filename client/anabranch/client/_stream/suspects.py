"""`Suspects`: what may begin beside a message that may end the process (`_consumer.lives`).

The owner of a bucket is careful after two that ended without progress. Then nothing else runs in
the process, whatever its topic, and a commit names the message before it begins. While a commit of
the process names one, nothing else may begin: its end of the process would be taken for that one's.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from anabranch.client._consumer.gaps import Gaps
from anabranch.client._consumer.holding import Holding
from anabranch.client._stream.intake import TopicWork
from anabranch.client._stream.lanes import Item, Lanes


class Owned(NamedTuple):
    """A bucket, with the part of a run to which it belongs."""

    part: TopicWork
    holding: Holding


class Suspects:
    """The suspects of a run. `untold`: buckets of which something waits for a commit to begin."""

    def __init__(self, lanes: Lanes[Any]) -> None:
        self.untold: dict[Holding, TopicWork] = {}
        self._lanes = lanes
        self._quiet_for: Owned | None = None  # others wait for it, to run nothing else
        self._named_by: Owned | None = None  # a bucket whose commit may name what has ended
        self._alone: Item[Any] | None = None  # the message beside which nothing runs

    @property
    def are_none(self) -> bool:
        """Tells whether nothing waits or runs alone, and no commit names a message."""
        return self._alone is None and self._quiet_for is None and self._named_by is None

    @property
    def is_alone(self) -> bool:
        """Tells whether a message runs beside which nothing may."""
        return self._alone is not None

    def let_begin(self, now: float) -> bool:
        """Tells whether anything may begin now."""
        if self._alone is not None or self._names_somebody(now):
            return False
        if self._quiet_for is not None:
            fetch = self._quiet_for.holding.fetch
            is_quiet = self._is_quiet()
            self._lanes.look_again((fetch.number,) if is_quiet and fetch is not None else None)
        return True

    def admit(self, part: TopicWork, holding: Holding, gaps: Gaps, offset: int) -> bool:
        """Tells whether that message may begin now."""
        if gaps.is_free and self._quiet_for is None:
            return True
        if gaps.lives.is_careful:
            is_it = self._quiet_for is not None and self._quiet_for.holding is holding
            if not is_it and self._is_quiet():
                return False
            self._quiet_for = Owned(part, holding)
            if self._lanes.running:
                return False
        elif self._is_quiet():
            return False
        is_told = gaps.is_told(offset)
        if not is_told:
            self.untold[holding] = part
        return is_told

    def begin(self, item: Item[Any], gaps: Gaps) -> None:
        """Notes that a message begins."""
        if not gaps.is_free:
            self._alone = item

    def end(self, item: Item[Any], bucket: Owned, most: int, *, is_cancelled: bool) -> None:
        """Notes that an attempt is over. `most` may run at once."""
        if self._alone is not item:
            return
        self._alone = self._quiet_for = None
        self._named_by = bucket
        self._lanes.look_again()
        gaps = bucket.holding.gaps
        if gaps is not None:
            if gaps.lives.is_careful and not is_cancelled:
                gaps.lives.passed(most, is_all=not self._has_ready(bucket.holding))
            gaps.name_nobody()

    def _names_somebody(self, now: float) -> bool:
        if self._named_by is None:
            return False
        part, holding = self._named_by
        if holding.gaps is not None and holding.gaps.waits and part.core.is_held(holding, now):
            self.untold[holding] = part
            return True
        self._named_by = None
        return False

    def _is_quiet(self) -> bool:
        """Tells whether others wait for a bucket whose owner is careful."""
        if self._quiet_for is None:
            return False
        part, holding = self._quiet_for
        is_careful = holding.gaps is not None and holding.gaps.lives.is_careful
        if is_careful and not part.is_over and self._has_ready(holding):
            return True
        self._quiet_for = None
        return False

    def _has_ready(self, holding: Holding) -> bool:
        fetch = holding.fetch
        queued = None if fetch is None else self._lanes.queued.get(fetch.number)
        return queued is not None and bool(queued.ready)
