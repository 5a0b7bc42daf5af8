"""How a request reaches its end: proposals with a deadline, lost races tried again, waiting."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, TypeVar

from anabranch.broker.errors import ConflictError, DeadlineError, UnavailableError
from anabranch.broker.runtime import Runtime
from anabranch.core.outcome import Folded
from anabranch.core.ownership import Actor
from anabranch.core.records import Record
from anabranch.core.verdicts import Verdict

_R = TypeVar("_R", bound=Record)

RACES_MAX: Final = 8  # lost one after another before a request gives up


class Requests:
    """What every operation needs of the runtime."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime

    @staticmethod
    def deadline(timeout_s: float) -> float:
        """That many seconds from now, on the loop's clock."""
        return asyncio.get_running_loop().time() + timeout_s

    def actor(self) -> Actor:
        """This node as a proposer. Raises UnavailableError without a lease."""
        if self.runtime.ended.done():
            raise UnavailableError("this node is stopping; ask another")
        if not self.runtime.has_lease:
            raise UnavailableError(
                "this node is in safe mode: it has lost touch with Kafka and takes no requests "
                "that need the log until it is back; try again, or ask another node"
            )
        return self.runtime.core.actor()

    async def propose(self, record: Record, deadline: float) -> Folded:
        """The record's verdict. Raises DeadlineError when it is not known in time."""
        try:
            async with asyncio.timeout_at(deadline):
                return await self.runtime.propose(record)
        except TimeoutError:
            raise DeadlineError(
                f"the log did not answer in time; whether {record.key} was changed is not known: "
                "look before you try again"
            ) from None

    async def changed(self, key: str, deadline: float, what: str) -> None:
        """Waits for the entity to change. Raises DeadlineError; `what` says what was waited for."""
        try:
            async with asyncio.timeout_at(deadline):
                await self.runtime.changed(key)
        except TimeoutError:
            raise DeadlineError(f"{what} in time; try again") from None
        if self.runtime.ended.done():
            raise UnavailableError("this node is stopping; ask another")

    async def settle(
        self,
        build: Callable[[], _R | None],
        refusals: Mapping[Verdict, Exception | None],
        deadline: float,
        ready: Callable[[], Awaitable[object]] | None = None,
    ) -> _R | None:
        """The record that was accepted, of those that `build` makes of the present state.

        None when there is nothing to do: `build` returned it, or `refusals` has it for the verdict;
        else the error there is raised. A lost race is tried again. `build` raises what the request
        ends in when the state forbids it; `ready`, before it, waits for a state that does not.
        """
        key = ""
        for _ in range(RACES_MAX):
            if ready is not None:
                await ready()
            record = build()
            if record is None:
                return None
            key = record.key
            verdict = (await self.propose(record, deadline)).outcome.verdict
            if verdict is Verdict.ACCEPTED:
                return record
            if verdict in refusals:
                refusal = refusals[verdict]
                if refusal is None:
                    return None
                raise refusal
            if verdict is Verdict.SESSION_OVER:
                raise UnavailableError("this node's session is over; try again, or ask another")
        raise ConflictError(f"{key} was changed by others {RACES_MAX} times meanwhile; try again")
