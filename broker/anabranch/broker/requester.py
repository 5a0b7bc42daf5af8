"""The principal of the request that a node answers just now.

The part that takes a request in, by REST or by the binary protocol, says here who asks. One place
reads it, where a node becomes a proposer (`Proposals.actor`). A node proposes its own acts as
`NodeCore.actor`, which knows of no request. Those acts include the assignment of a bundle that a
look-up asked for, and the next step of an operation that somebody has begun.
"""

from __future__ import annotations

from contextvars import ContextVar, Token
from typing import Final

from anabranch.core.security.principal import NOBODY, Principal

_REQUESTER: Final[ContextVar[Principal]] = ContextVar("requester", default=NOBODY)


def requester() -> Principal:
    """Returns the principal that asks, or NOBODY outside of requests and where none has to be
    named.
    """
    return _REQUESTER.get()


def principal() -> str:
    """Returns the role of the principal that asks, as the log has it."""
    return _REQUESTER.get().role


class asked_by:  # noqa: N801 - it is used like a function, and each request pays for it
    """All that is done within, and by tasks that begin within, is done for them."""

    __slots__ = ("_before", "_who")

    def __init__(self, who: Principal) -> None:
        self._who = who
        self._before: Token[Principal] | None = None

    def __enter__(self) -> None:
        self._before = _REQUESTER.set(self._who)

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            _REQUESTER.reset(self._before)
