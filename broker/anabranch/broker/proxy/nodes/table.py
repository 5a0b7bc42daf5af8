"""`NodeTable`: which nodes there are and which of them to ask first. Without clock or I/O."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

_REST_S_MIN: Final = 0.1
_REST_S_MAX: Final = 5.0
_DOUBLINGS_MAX: Final = 10


class _Trouble(msgspec.Struct):
    """Of a node that did not answer: how often in a row, and when it may be asked again."""

    count: int = 0
    until: float = 0.0


class NodeTable:
    """The addresses, host:port, of one kind of port of the nodes.

    Those that were named stay for ever, as what is left when nobody else answers; those that were
    learnt are what the cluster says of itself. Times are of one clock, in seconds.
    """

    def __init__(self, named: Iterable[str]) -> None:
        self.named: Final = tuple(dict.fromkeys(named))
        self._learnt: tuple[str, ...] = ()
        self._troubles: dict[str, _Trouble] = {}
        self._turn = 0

    @property
    def addresses(self) -> tuple[str, ...]:
        """All of them, those that the cluster itself tells first."""
        return tuple(dict.fromkeys((*self._learnt, *self.named)))

    def learn(self, addresses: Iterable[str]) -> bool:
        """The cluster consists of these now. True if that is new."""
        learnt = tuple(sorted(set(addresses)))
        is_new = learnt != self._learnt
        self._learnt = learnt
        for gone in self._troubles.keys() - set(self.addresses):
            del self._troubles[gone]
        return is_new

    def order(self, now: float) -> list[str]:
        """Whom to ask, best first: who answers, by turns; the others from who rests the least."""
        self._turn += 1
        first = self._rotated(self._learnt)
        rest = [each for each in self._rotated(self.named) if each not in self._learnt]
        return sorted((*first, *rest), key=lambda each: self._rest_of(each, now))

    def failed(self, address: str, now: float) -> bool:
        """It did not answer, and rests for a while, longer each time. True if that is new."""
        trouble = self._troubles.setdefault(address, _Trouble())
        rest_s = min(_REST_S_MAX, _REST_S_MIN * 2 ** min(trouble.count, _DOUBLINGS_MAX))
        trouble.count += 1
        trouble.until = now + rest_s
        return trouble.count == 1

    def answered(self, address: str) -> bool:
        """It is there. True if it was not, the last time."""
        return self._troubles.pop(address, None) is not None

    def answering(self) -> int:
        """How many did not fail when they were asked last."""
        return sum(each not in self._troubles for each in self.addresses)

    def _rotated(self, addresses: tuple[str, ...]) -> tuple[str, ...]:
        at = self._turn % len(addresses) if addresses else 0
        return (*addresses[at:], *addresses[:at])

    def _rest_of(self, address: str, now: float) -> float:
        trouble = self._troubles.get(address)
        return 0.0 if trouble is None else max(1e-9, trouble.until - now)
