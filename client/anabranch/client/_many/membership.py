"""The topics of a consumer over many of them, and the next step of each: pure decisions, no I/O, no
clock.

A shell drives `TopicMembership`. Inputs are calls that tell an event, with its time if that
matters: seconds of one clock that never goes back. Outputs are the orders of `orders`, each once,
and `wake_at`, the next change by time alone.

The life of a topic:

    WAITING -> OPENING -> OPEN -> DRAINING -> CLOSING -> gone, or WAITING again

* At most `opening_max` topics are being opened at once; the others wait, first come, first served.
* Messages are given out of OPEN topics only.
* A topic that leaves the list, or whose consumer fails, drains: its given-out messages may be
  acknowledged, until all of them are or `settle_s` is over. Then it is closed.
* A topic is opened again only once it is closed, so it never has two consumers here.
* A topic that cannot be opened, or fails, is tried again with back-off while the list has it.
  Others do not wait for it.

Changes by time are kept by their time, so that topics at rest cost nothing, even in great number.
"""

from __future__ import annotations

import enum
import heapq
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import msgspec

BACK_OFF_S_MIN: Final = 0.5
BACK_OFF_S_MAX: Final = 60.0
# A topic must have been open for so long that its next failure counts as the first again.
STEADY_S: Final = 60.0


class MemberState(enum.Enum):
    """The place of a topic in its life."""

    WAITING = "WAITING"
    OPENING = "OPENING"
    OPEN = "OPEN"
    DRAINING = "DRAINING"
    CLOSING = "CLOSING"


class OrderKind(enum.Enum):
    """The next step of the shell with a topic."""

    OPEN = "OPEN"
    CLOSE = "CLOSE"  # be it open, or being opened


class Order(msgspec.Struct, frozen=True):
    """One step for the shell. The shell tells its result by `opened`, `failed` or `closed`."""

    kind: OrderKind
    topic: str


@dataclass(slots=True, eq=False)
class _Member:
    state: MemberState = MemberState.WAITING
    listed: bool = True
    failures: int = 0
    since: float = 0.0  # it is in its state
    due: float = 0.0  # in WAITING: not opened before; in DRAINING: closed by then

    def enter(self, state: MemberState, now: float, due: float = math.inf) -> None:
        self.state, self.since, self.due = state, now, due


class TopicMembership:
    """The topics of one consumer. The module has the rules."""

    def __init__(self, settle_s: float, opening_max: int) -> None:
        self._settle_s = settle_s
        self._opening_max = opening_max
        self._members: dict[str, _Member] = {}
        self._waiting: dict[str, None] = {}  # in the order in which they came
        self._delayed: dict[str, None] = {}  # topics that wait for their back-off
        self._draining: dict[str, None] = {}
        # A heap of when each of the last two is due, and of what was due before.
        self._dues: list[tuple[float, str]] = []
        self._opening = 0
        self._orders: list[Order] = []
        self._over = False

    # Events.

    def listed(self, topics: Iterable[str], now: float) -> None:
        """Notes that the list has these topics, too."""
        for topic in topics:
            member = self._members.get(topic)
            if member is None and not self._over:
                self._members[topic] = _Member(since=now)
                self._waiting[topic] = None
            elif member is not None:
                member.listed = not self._over

    def unlisted(self, topics: Iterable[str], now: float) -> None:
        """Notes that the list has these topics no more."""
        for topic in topics:
            member = self._members.get(topic)
            if member is not None and member.listed:
                member.listed = False
                member.failures = 0
                self._leave(topic, member, now)

    def opened(self, topic: str, now: float) -> None:
        """Notes that the topic is open, as ordered."""
        member = self._members.get(topic)
        if member is not None and member.state is MemberState.OPENING:
            self._opening -= 1
            member.enter(MemberState.OPEN, now)

    def failed(self, topic: str, now: float) -> float:
        """Notes that the topic could not be opened, or that its consumer can go on no more. Nothing
        of an unopened topic is left, and the consumer is closed.

        Returns the seconds until it is tried again.
        """
        member = self._members.get(topic)
        if member is None or member.state in (MemberState.WAITING, MemberState.CLOSING):
            return 0.0
        if member.state is MemberState.OPEN and now - member.since >= STEADY_S:
            member.failures = 0
        member.failures += 1
        if member.state is MemberState.OPENING:
            self._opening -= 1
            self._wait_again(topic, member, now)
        elif member.state is MemberState.OPEN:
            self._leave(topic, member, now)
        return self._back_off_s(member)

    def settled(self, topic: str, now: float) -> None:
        """Notes that nothing that was given out of the topic is left to acknowledge."""
        member = self._members.get(topic)
        if member is not None and member.state is MemberState.DRAINING:
            self._close(topic, member, now)

    def closed(self, topic: str, now: float) -> None:
        """Notes that nothing of the topic is left here."""
        member = self._members.get(topic)
        if member is not None and member.state is MemberState.CLOSING:
            self._wait_again(topic, member, now)

    def close(self, now: float) -> None:
        """Closes the consumer: every topic goes at once."""
        self._over = True
        for topic, member in list(self._members.items()):
            member.listed = False
            self._leave(topic, member, now)
            if member.state is MemberState.DRAINING:
                self._close(topic, member, now)

    # Orders.

    def orders(self, now: float) -> list[Order]:
        """Returns the steps that are due and new, in this order."""
        while self.wake_at() <= now:
            _, topic = heapq.heappop(self._dues)
            if topic in self._draining:
                self._close(topic, self._members[topic], now)
            else:
                del self._delayed[topic]
                self._waiting[topic] = None
        while self._waiting and self._opening < self._opening_max:
            topic = next(iter(self._waiting))
            del self._waiting[topic]
            self._opening += 1
            self._members[topic].enter(MemberState.OPENING, now)
            self._orders.append(Order(OrderKind.OPEN, topic))
        found, self._orders = self._orders, []
        return found

    def wake_at(self) -> float:
        """Returns the next time at which `orders` may have something by time alone."""
        while self._dues:
            due, topic = self._dues[0]
            is_timed = topic in self._delayed or topic in self._draining
            if is_timed and self._members[topic].due == due:
                return due
            heapq.heappop(self._dues)
        return math.inf

    # The state.

    def state(self, topic: str) -> MemberState | None:
        """Returns the state of a topic, None if it is not here."""
        member = self._members.get(topic)
        return None if member is None else member.state

    def counts(self) -> dict[MemberState, int]:
        """Returns the number of topics in each state."""
        found = dict.fromkeys(MemberState, 0)
        for member in self._members.values():
            found[member.state] += 1
        return found

    @property
    def draining(self) -> list[str]:
        """Returns the topics whose given-out messages are waited for."""
        return list(self._draining)

    @property
    def is_empty(self) -> bool:
        """True if no topic is left."""
        return not self._members

    # The rules.

    def _leave(self, topic: str, member: _Member, now: float) -> None:
        """Takes the topic one step towards its end, from any state."""
        if member.state is MemberState.WAITING:
            self._forget(topic)
        elif member.state is MemberState.OPENING:
            self._opening -= 1
            self._close(topic, member, now)
        elif member.state is MemberState.OPEN:
            member.enter(MemberState.DRAINING, now, now + self._settle_s)
            self._draining[topic] = None
            heapq.heappush(self._dues, (member.due, topic))

    def _close(self, topic: str, member: _Member, now: float) -> None:
        self._draining.pop(topic, None)
        member.enter(MemberState.CLOSING, now)
        self._orders.append(Order(OrderKind.CLOSE, topic))

    def _wait_again(self, topic: str, member: _Member, now: float) -> None:
        """Ends a closed topic, unless the list has it, or has it again."""
        if not member.listed:
            self._forget(topic)
            return
        back_off_s = self._back_off_s(member)
        member.enter(MemberState.WAITING, now, now + back_off_s)
        if not back_off_s:
            self._waiting[topic] = None
            return
        self._delayed[topic] = None
        heapq.heappush(self._dues, (member.due, topic))

    def _back_off_s(self, member: _Member) -> float:
        if not member.failures:
            return 0.0
        return min(BACK_OFF_S_MAX, BACK_OFF_S_MIN * 2.0 ** min(member.failures - 1, 20))

    def _forget(self, topic: str) -> None:
        del self._members[topic]
        for queue in (self._waiting, self._delayed, self._draining):
            queue.pop(topic, None)
