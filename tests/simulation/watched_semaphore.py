"""`WatchedSemaphore`: the product's semaphore under an observer, who keeps books of his own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.core.topic_lists.semaphore import (
    CancelFlag,
    Effect,
    Permit,
    PermitGranted,
    Refusal,
    Semaphore,
    SemaphoreLimits,
)
from anabranch.wire.memory.semaphore import AsyncSemaphore
from simulation.process import Process
from simulation.scheduler import ViolationError

if TYPE_CHECKING:
    from simulation.list_proxy import ListProxy
    from simulation.list_world import ListWorld

NS = 1_000_000_000
LATE_S = 1.0  # of a time-out: the loop's turns take time


def _never() -> bool:
    return False


class WatchedSemaphore(Semaphore):
    """Permits never exceed the limit that is in force when they are given; first in, first out;
    nobody waits for longer than may be.
    """

    process: Process | ListProxy
    world: ListWorld

    def __init__(self, limits: SemaphoreLimits) -> None:
        super().__init__(limits)
        self.queue: dict[int, int] = {}  # when each asked, by its own clock, in this order
        self.permits: list[Permit] = []

    @staticmethod
    def put_into(
        side: AsyncSemaphore, process: Process | ListProxy, world: ListWorld
    ) -> WatchedSemaphore:
        """In the place of the one that decides for a side of a limiter."""
        watched = WatchedSemaphore(side.limits)
        watched.process, watched.world = process, world
        side._core = watched
        return watched

    def acquire(
        self, request: int, permits: int, now_ns: int, is_cancelled: CancelFlag = _never
    ) -> list[Effect]:
        self.queue[request] = now_ns
        return self._see(super().acquire(request, permits, now_ns, is_cancelled))

    def update(
        self,
        request: int,
        permit: Permit,
        permits: int,
        now_ns: int,
        is_cancelled: CancelFlag = _never,
    ) -> list[Effect]:
        waits = not 0 <= permits <= permit.permits
        if waits:
            self.queue[request] = now_ns
        found = super().update(request, permit, permits, now_ns, is_cancelled)
        if not waits and isinstance(found[0], PermitGranted):
            self.permits.append(found[0].permit)
        return self._see(found)

    def release(self, permit: Permit, now_ns: int) -> list[Effect]:
        return self._see(super().release(permit, now_ns))

    def withdraw(self, request: int, now_ns: int) -> list[Effect]:
        self.queue.pop(request, None)
        return self._see(super().withdraw(request, now_ns))

    def time_out(self, now_ns: int) -> list[Effect]:
        return self._see(super().time_out(now_ns))

    def configure(self, limits: SemaphoreLimits, now_ns: int) -> list[Effect]:
        return self._see(super().configure(limits, now_ns))

    def look(self, now_ns: int) -> list[Effect]:
        return self._see(super().look(now_ns))

    # --- the observer -------------------------------------------------------------------

    @property
    def outstanding(self) -> int:
        """Permits that were given and never came back."""
        self.permits = [each for each in self.permits if each.permits]
        return sum(each.permits for each in self.permits)

    def check(self) -> None:
        """Nobody waits for longer than the time-out that is in force, and the books agree."""
        if self.outstanding != self._held:
            raise ViolationError(f"{self._who} counts {self._held}, {self.outstanding} are held")
        now_ns = int(self.process.local_now() * NS)
        for number, asked_ns in self.queue.items():
            if now_ns - asked_ns > self.limits.timeout_ns + LATE_S * NS:
                waits_s = (now_ns - asked_ns) / NS
                raise ViolationError(f"{self._who} lets request {number} wait for {waits_s:.1f} s")

    def _see(self, effects: list[Effect]) -> list[Effect]:
        given = False
        for effect in effects:
            if effect.request not in self.queue:
                continue  # it was seen where it happened
            if isinstance(effect, PermitGranted):
                given = True
                self._was_given(effect)
            elif effect.reason is Refusal.TIMED_OUT:
                self.world.timed_out += 1
            del self.queue[effect.request]
        limits = self.limits
        if given and limits.is_bounded and (held := self.outstanding) > limits.permits_max:
            raise ViolationError(
                f"{self._who} gave permits, and {held} are held of {limits.permits_max}"
            )
        return effects

    def _was_given(self, granted: PermitGranted) -> None:
        self.permits.append(granted.permit)
        for number in self.queue:
            if number == granted.request:
                return
            if number in self._queue:
                raise ViolationError(
                    f"{self._who} serves {granted.request} before {number}, which waits"
                )

    @property
    def _who(self) -> str:
        return f"the limiter of {self.process.name}"
