"""`Barrier`: what was sent before a moment and is not settled, for `flush`. Pure, no I/O.

Appends to a partition are reported in their order. So of what is under way a count for each flow
tells, and the hot path has nothing to note. What is held or refused is known one by one; it is
followed to the flow that it is appended to. What is given up is reported in any order, but then
the flow is paused, and nothing new comes after it.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from anabranch.client.flows import Flow, Held


class Barrier:
    """Made at that moment, of all flows that have not been left."""

    def __init__(self, flows: Iterable[Flow]) -> None:
        flows = list(flows)
        self._before = {flow: flow.appended for flow in flows if flow.outstanding}
        self._held = {held for flow in flows for held in (*flow.refused, *flow.held)}
        # Of what was held then, the numbers of its appends, ascending.
        self._followed: defaultdict[Flow, deque[int]] = defaultdict(deque)

    @property
    def left(self) -> int:
        """How many are not settled."""
        return len(self._held) + sum(
            self._left(flow) for flow in {**self._before, **self._followed}
        )

    def appended(self, held: Held, flow: Flow) -> None:
        """A message that was in our hands is the newest append of that flow."""
        if held in self._held:
            self._held.remove(held)
            self._followed[flow].append(flow.appended)

    def refused(self, held: Held, flow: Flow) -> None:
        """The newest report of that flow refused a message, which is in our hands again."""
        first = self._before.get(flow, 0)
        followed = self._followed[flow]
        while followed and followed[0] < flow.settled:
            followed.popleft()
        is_one = flow.settled <= first or (followed and followed[0] == flow.settled)
        if is_one or (flow.paused and (first or followed)):
            self._held.add(held)

    def settled(self, held: Held) -> None:
        """What was in our hands needs no append any more."""
        self._held.discard(held)

    def _left(self, flow: Flow) -> int:
        if flow.paused:
            return flow.outstanding
        followed = self._followed[flow]
        while followed and followed[0] <= flow.settled:
            followed.popleft()
        return max(0, self._before.get(flow, 0) - flow.settled) + len(followed)


class Barriers:
    """Those that somebody waits at."""

    def __init__(self) -> None:
        self._open: list[Barrier] = []

    @contextmanager
    def opened(self, flows: Iterable[Flow]) -> Iterator[Barrier]:
        """A new one, as long as somebody waits."""
        barrier = Barrier(flows)
        self._open.append(barrier)
        try:
            yield barrier
        finally:
            self._open.remove(barrier)

    def appended(self, held: Held, flow: Flow) -> None:
        """See `Barrier`."""
        for each in self._open:
            each.appended(held, flow)

    def refused(self, held: Held, flow: Flow) -> None:
        """See `Barrier`."""
        for each in self._open:
            each.refused(held, flow)

    def settled(self, held: Held) -> None:
        """See `Barrier`."""
        for each in self._open:
            each.settled(held)
