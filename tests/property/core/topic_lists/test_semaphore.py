"""The semaphore against its rules told once more, plainly: lists that are searched, no counts kept.

Whatever happens in whatever order: the same requests get permits at the same events, for the same
reasons; each ends exactly once; and what is held is what was given, less what came back.
"""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from anabranch.core.topic_lists.semaphore import LARGEST
from support.permits import NamedRequests

PERMITS = st.integers(-1, 11)
MAXIMA = st.integers(-1, 9)
QUEUES = st.integers(-1, 4)
TIMEOUTS = st.integers(1, 30)
WHICH = st.integers(0, 1_000_000)


@dataclass
class Waiting:
    """A request in the rules' queue; `old` names the request whose permits it updates."""

    name: str
    permits: int
    old: str
    asked: int


class Rules:
    """What the rules say of each event, request by request."""

    def __init__(self, permits_max: int, queue_max: int, timeout: int) -> None:
        self.permits_max, self.queue_max, self.timeout = permits_max, queue_max, timeout
        self.now = 0
        self.is_closed = False
        self.queue: list[Waiting] = []
        self.held: dict[str, int] = {}  # by the request that got them
        self.cancelled: set[str] = set()
        self.said: list[str] = []

    @property
    def free(self) -> int:
        return self.permits_max - sum(self.held.values())

    def ask(self, name: str, permits: int, old: str = "") -> None:
        asked = Waiting(name, permits, old, self.now)
        if permits < 0:
            self.said.append(f"{name} negative")
        elif old and permits <= self.held[old]:
            shrinks = permits < self.held[old]
            self.grant(asked)
            if shrinks:
                self.look()
        elif self.permits_max <= 0:
            self.grant(asked)
        elif permits > self.permits_max:
            self.said.append(f"{name} more_than_all")
        elif self.is_closed:
            self.said.append(f"{name} closed")
        elif self.queue_max > 0 and len(self.queue) >= self.queue_max:
            self.said.append(f"{name} queue_full")
        else:
            self.queue.append(asked)
            self.look()

    def grant(self, asked: Waiting) -> None:
        if asked.old:
            self.held[asked.old] = 0
        self.held[asked.name] = asked.permits
        self.said.append(f"{asked.name} has {asked.permits}")

    def look(self) -> None:
        while self.queue and self.free > 0:
            head = self.queue[0]
            if head.name in self.cancelled:
                self.said.append(f"{head.name} cancelled")
            elif head.permits - self.held.get(head.old, 0) <= self.free:
                self.grant(head)
            else:
                return
            self.queue.remove(head)

    def time_out(self) -> None:
        """Each request has its own alarm; they ring in the order in which they were set."""
        for each in sorted(self.queue, key=lambda each: each.asked):
            if each in self.queue and each.asked + self.timeout <= self.now:
                self.queue.remove(each)
                self.said.append(f"{each.name} timed_out")
                self.look()

    def release(self, name: str) -> None:
        self.held[name] = 0
        self.look()

    def withdraw(self, name: str) -> None:
        if any(each.name == name for each in self.queue):
            self.queue = [each for each in self.queue if each.name != name]
            self.look()

    def close(self) -> None:
        self.is_closed = True
        self.said += [f"{each.name} closed" for each in self.queue]
        self.queue = []

    def configure(self, permits_max: int, queue_max: int, timeout: int) -> None:
        self.permits_max, self.queue_max, self.timeout = permits_max, queue_max, timeout
        if permits_max <= 0:
            waiting, self.queue = self.queue, []
            for each in waiting:
                self.grant(each)
            return
        for each in list(self.queue):
            if each.permits > permits_max:
                self.queue.remove(each)
                self.said.append(f"{each.name} more_than_all")
        self.look()
        self.time_out()


class SemaphoreMachine(RuleBasedStateMachine):
    """Does the same to both."""

    @initialize(permits_max=MAXIMA, queue_max=QUEUES, timeout=TIMEOUTS)
    def begin(self, permits_max: int, queue_max: int, timeout: int) -> None:
        self.of = NamedRequests(permits_max, queue_max, timeout)
        self.model = Rules(permits_max, queue_max, timeout)
        self.names: list[str] = []
        self.said: list[str] = []
        self.ended: list[str] = []
        self.was_lowered = False

    def _name(self, flagged: bool) -> str:
        name = f"r{len(self.names)}"
        self.names.append(name)
        if flagged:
            self._cancel(name)
        return name

    def _cancel(self, name: str) -> None:
        self.of.cancelled.add(name)
        self.model.cancelled.add(name)

    def _compare(self, said: list[str]) -> None:
        self.said += said
        self.ended += [each.split()[0] for each in said]
        assert self.said == self.model.said

    @rule(permits=PERMITS, flagged=st.booleans())
    def acquire(self, permits: int, flagged: bool) -> None:
        name = self._name(flagged and permits % 3 == 0)
        self.model.ask(name, permits)
        self._compare(self.of.acquire(name, permits))

    @precondition(lambda self: self.of.permits)
    @rule(which=WHICH, permits=PERMITS)
    def update(self, which: int, permits: int) -> None:
        old = self._one_of(list(self.of.permits), which)
        name = self._name(flagged=False)
        self.model.ask(name, permits, old)
        self._compare(self.of.update(name, old, permits))

    @precondition(lambda self: self.of.permits)
    @rule(which=WHICH)
    def release(self, which: int) -> None:
        name = self._one_of(list(self.of.permits), which)
        self.model.release(name)
        self._compare(self.of.release(name))

    @precondition(lambda self: self.names)
    @rule(which=WHICH)
    def withdraw(self, which: int) -> None:
        name = self._one_of(self.names, which)
        if any(each.name == name for each in self.model.queue):
            self.ended.append(name)
        self.model.withdraw(name)
        self._compare(self.of.withdraw(name))

    @precondition(lambda self: self.names)
    @rule(which=WHICH)
    def cancel(self, which: int) -> None:
        self._cancel(self._one_of(self.names, which))

    @rule()
    def look(self) -> None:
        self.model.look()
        self._compare(self.of.look())

    @rule(later=st.integers(0, 20))
    def time_passes(self, later: int) -> None:
        self.model.now += later
        self.model.time_out()
        self._compare(self.of.pass_time(self.of.now + later))

    @rule(permits_max=MAXIMA, queue_max=QUEUES, timeout=TIMEOUTS)
    def configure(self, permits_max: int, queue_max: int, timeout: int) -> None:
        self.was_lowered = True
        self.model.configure(permits_max, queue_max, timeout)
        self._compare(self.of.configure(permits_max, queue_max, timeout))

    @precondition(lambda self: len(self.names) > 8)
    @rule()
    def close(self) -> None:
        self.model.close()
        self._compare(self.of.close())

    @invariant()
    def what_is_held_was_given_and_did_not_come_back(self) -> None:
        semaphore = self.of.semaphore
        held = {name: permit.permits for name, permit in self.of.permits.items()}
        assert held == self.model.held
        is_bounded = semaphore.limits.is_bounded
        assert semaphore.acquired == (sum(held.values()) if is_bounded else 0)
        assert semaphore.available == (max(0, self.model.free) if is_bounded else LARGEST)
        assert min(held.values(), default=0) >= 0
        if is_bounded and not self.was_lowered:
            assert semaphore.acquired <= semaphore.limits.permits_max

    @invariant()
    def each_request_waits_or_has_ended_once(self) -> None:
        waiting = [each.name for each in self.model.queue]
        assert self.of.semaphore.queue_size == len(waiting)
        assert sorted([*waiting, *self.ended]) == sorted(self.names)

    def _one_of(self, names: list[str], which: int) -> str:
        return names[which % len(names)]

    def teardown(self) -> None:
        """All comes back in the end."""
        if not hasattr(self, "of"):
            return
        self.model.close()
        self._compare(self.of.close())
        for name in list(self.of.permits):
            self.model.release(name)
            self._compare(self.of.release(name))
        self.of.configure(10)
        assert self.of.semaphore.available == 10
        assert sorted(self.ended) == sorted(self.names)


TestSemaphore = SemaphoreMachine.TestCase
TestSemaphore.settings = settings(stateful_step_count=60)
