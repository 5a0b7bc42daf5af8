"""Simulated time: one heap of events, one source of chance, one trace. Same seed, same run."""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Callable
from functools import partial
from hashlib import blake2b
from itertools import count

Action = Callable[[], None]


class ViolationError(AssertionError):
    """The cluster broke a promise; the message says which one, where and when."""


class Scheduler:
    """Runs events in the order of their (true) time, ties in the order they were made."""

    def __init__(self, seed: int, *, keep_trace: bool = False) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        self.now = 0.0
        self.events = 0
        self.trace: list[str] | None = [] if keep_trace else None
        self._heap: list[tuple[float, int, Action]] = []
        self._ticket = count()
        self._hash = blake2b(digest_size=16)

    def at(self, when: float, action: Action) -> None:
        heapq.heappush(self._heap, (max(when, self.now), next(self._ticket), action))

    def after(self, delay: float, action: Action) -> None:
        self.at(self.now + delay, action)

    def run_until(self, end: float) -> None:
        heap = self._heap
        while heap and heap[0][0] <= end:
            self.now, _, action = heapq.heappop(heap)
            self.events += 1
            action()
        self.now = end

    def note(self, text: str) -> None:
        """Adds a line to the trace."""
        line = f"{self.now:.6f} {text}"
        self._hash.update(line.encode())
        if self.trace is not None:
            self.trace.append(line)

    @property
    def fingerprint(self) -> str:
        """Equal for two runs that did the same things at the same times."""
        return self._hash.hexdigest()

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability


class Stop:
    """What something that stands still for a while does not do until it goes on."""

    def __init__(self, sched: Scheduler) -> None:
        self.until = 0.0
        self._sched = sched
        self._deferred: deque[Action] = deque()

    @property
    def is_on(self) -> bool:
        return self._sched.now < self.until

    def begin(self, duration_s: float) -> None:
        self.until = max(self.until, self._sched.now + duration_s)

    def end(self) -> None:
        """It goes on before its time."""
        self.until = self._sched.now
        for _ in self._deferred:
            self._sched.at(self.until, self._next)

    def defer(self, action: Action) -> None:
        """Calls it when this is over: which it may not be, once more, by then."""
        self._deferred.append(action)
        self._sched.at(self.until, self._next)

    def _next(self) -> None:
        if self._deferred:
            self._deferred.popleft()()


class Life:
    """What crashes, so that nothing comes of what it had planned, and pauses, which defers it."""

    def __init__(self, sched: Scheduler) -> None:
        self.life = 0
        self._sched = sched
        self._stop = Stop(sched)

    def pause(self, duration_s: float) -> None:
        self._stop.begin(duration_s)

    def resume(self) -> None:
        self._stop.end()

    def later(self, delay_s: float, action: Action) -> None:
        self._sched.after(delay_s, partial(self.run_in, self.life, action))

    def run_in(self, life: int, action: Action) -> None:
        if life != self.life:
            return
        if self._stop.is_on:
            self._stop.defer(partial(self.run_in, life, action))
        else:
            action()
