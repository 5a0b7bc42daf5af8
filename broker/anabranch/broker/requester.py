"""On whose behalf a node does something: the principal of the request that it answers just now.

Whoever takes a request in, by REST or by the binary protocol, says here who asks; it is read in one
place, where a node becomes a proposer (`Proposals.actor`). What a node does by itself is proposed
as `NodeCore.actor`, which knows of no request: so a bundle that a look-up lets be assigned, or the
next step of what somebody has begun, is the node's own.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

_PRINCIPAL: Final[ContextVar[str]] = ContextVar("principal", default="")


def principal() -> str:
    """The role of whoever asks; "" outside of requests, and where nobody has to say who it is."""
    return _PRINCIPAL.get()


@contextmanager
def asked_by(role: str) -> Iterator[None]:
    """All that is done within, and by tasks that begin within, is done for this role."""
    before = _PRINCIPAL.set(role)
    try:
        yield
    finally:
        _PRINCIPAL.reset(before)
