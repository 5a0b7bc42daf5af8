"""`Guesses`: the wait of a guesser for each "no", by address.

The first few wrong tries of an address cost nothing, because people mistype. Each further one is
answered twice as late as the one before. The delay has a bound below the time-outs of clients,
because clients are to hear the reason. Only some tries may be under way at once, and a try is under
way for longer than its answer takes. The others are turned away without a look at their
credentials. So an address has only so many tries in a second, however many connections it makes and
leaves. A right try is answered at once, because it may come from somebody else behind the same
address.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

import msgspec

FREE_TRIES: Final = 5
FIRST_DELAY_S: Final = 0.25
DELAY_S_MAX: Final = 8.0
ANSWER_S_MAX: Final = 2.0  # the SDK waits for 3 s at least
FORGOTTEN_AFTER_S: Final = 60.0
WAITING_MAX: Final = 16  # tries of one address
ADDRESSES_MAX: Final = 10_000


class _Guesser(msgspec.Struct):
    wrong: int = 0
    last_at: float = 0.0
    under_way: int = 0


class Guesses:
    """The guesses of all addresses. Times are in seconds of any one clock."""

    def __init__(self) -> None:
        self._guessers: OrderedDict[str, _Guesser] = OrderedDict()  # longest silent first

    def __len__(self) -> int:
        return len(self._guessers)

    def begin(self, address: str, now: float) -> bool:
        """Tells whether to look at the address's credentials; if so, the caller must call `end`
        later.
        """
        guesser = self._guessers.get(address)
        if guesser is None:
            while len(self._guessers) >= ADDRESSES_MAX:
                self._guessers.popitem(last=False)
            guesser = self._guessers[address] = _Guesser()
        elif now - guesser.last_at >= FORGOTTEN_AFTER_S:
            guesser.wrong = 0
        if guesser.wrong >= FREE_TRIES and guesser.under_way >= WAITING_MAX:
            return False
        guesser.under_way += 1
        guesser.last_at = now
        self._guessers.move_to_end(address)
        return True

    def was_wrong(self, address: str, now: float) -> float:
        """A try that was begun is wrong. Returns the seconds for which it goes on to be under way,
        even if its connection is gone. The answer is due sooner: see `answer_s`.
        """
        guesser = self._guessers.get(address)
        if guesser is None:  # so many others came since
            return FIRST_DELAY_S
        guesser.wrong += 1
        guesser.last_at = now
        beyond = guesser.wrong - FREE_TRIES
        if beyond <= 0:
            return 0.0
        return min(DELAY_S_MAX, FIRST_DELAY_S * 2.0 ** min(beyond - 1, 30))

    def end(self, address: str) -> None:
        """A try that was begun is over."""
        guesser = self._guessers.get(address)
        if guesser is None:
            return
        guesser.under_way = max(0, guesser.under_way - 1)
        if not guesser.wrong and not guesser.under_way:
            del self._guessers[address]


def answer_s(delay_s: float) -> float:
    """After how long a wrong try is answered that is under way for so long."""
    return min(delay_s, ANSWER_S_MAX)
