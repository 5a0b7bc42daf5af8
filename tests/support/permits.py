"""A semaphore of the core with requests that have names, and what came of them as words."""

from __future__ import annotations

from collections.abc import Iterable

from anabranch.core.topic_lists import semaphore


class NamedRequests:
    """Tells each event at `now`, and returns what came of it: `"a has 3"`, `"b timed_out"`."""

    def __init__(self, permits_max: int = 10, queue_max: int = 0, timeout_ns: int = 100) -> None:
        self.semaphore = semaphore.Semaphore(
            semaphore.SemaphoreLimits(permits_max, queue_max, timeout_ns)
        )
        self.now = 0
        self.permits: dict[str, semaphore.Permit] = {}  # of who has some, by the request's name
        self.latencies: list[int] = []
        self.messages: dict[str, str] = {}
        self.cancelled: set[str] = set()
        self._names: list[str] = []

    def acquire(self, name: str, permits: int) -> list[str]:
        number = self._number(name)
        return self._told(self.semaphore.acquire(number, permits, self.now, self._flag(name)))

    def update(self, name: str, of: str, permits: int) -> list[str]:
        number, old, flag = self._number(name), self.permits[of], self._flag(name)
        return self._told(self.semaphore.update(number, old, permits, self.now, flag))

    def release(self, name: str) -> list[str]:
        return self._told(self.semaphore.release(self.permits[name], self.now))

    def withdraw(self, name: str) -> list[str]:
        return self._told(self.semaphore.withdraw(self._names.index(name), self.now))

    def pass_time(self, to: int) -> list[str]:
        self.now = to
        return self._told(self.semaphore.time_out(to))

    def look(self) -> list[str]:
        return self._told(self.semaphore.look(self.now))

    def close(self) -> list[str]:
        return self._told(self.semaphore.close(self.now))

    def configure(self, permits_max: int, queue_max: int = 0, timeout_ns: int = 100) -> list[str]:
        limits = semaphore.SemaphoreLimits(permits_max, queue_max, timeout_ns)
        return self._told(self.semaphore.configure(limits, self.now))

    def held(self, name: str) -> int:
        return self.permits[name].permits

    def _number(self, name: str) -> int:
        assert name not in self._names
        self._names.append(name)
        return len(self._names) - 1

    def _flag(self, name: str) -> semaphore.CancelFlag:
        return lambda: name in self.cancelled

    def _told(self, effects: Iterable[semaphore.Effect]) -> list[str]:
        words = []
        for effect in effects:
            name = self._names[effect.request]
            self.latencies += effect.latencies_ns
            if isinstance(effect, semaphore.PermitGranted):
                self.permits[name] = effect.permit
                words.append(f"{name} has {effect.permit.permits}")
            else:
                assert isinstance(effect.reason, semaphore.Refusal)
                self.messages[name] = effect.message
                words.append(f"{name} {effect.reason.name.lower()}")
        return words
