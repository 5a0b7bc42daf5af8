"""The fate of a message whose handler fails: attempts, waits, and the end of them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final, Literal, get_args

import msgspec

from anabranch.client._consumer.messages import Message
from anabranch.core.errors import InvalidInputError

Then = Literal["block", "stop", "dead_letter"]  # what follows the last attempt

_DELAY_S_MAX: Final = 3_600.0


class Backoff(msgspec.Struct, frozen=True, kw_only=True):
    """Waits between attempts, in seconds: the first one, and each `factor` times the one before, up
    to `most`.

    >>> [Backoff(first=1.0, factor=3.0, most=5.0).delay_s(failures) for failures in (1, 2, 3)]
    [1.0, 3.0, 5.0]
    """

    first: float = 0.2
    factor: float = 2.0
    most: float = 30.0

    def delay_s(self, failures: int) -> float:
        """Returns the wait after so many failures in a row, one or more."""
        try:
            return min(self.most, self.first * self.factor ** (failures - 1))
        except OverflowError:
            return self.most

    def check(self) -> None:
        """Raises InvalidInputError for values that make no sense."""
        if not all(map(_is_number, (self.first, self.factor, self.most))):
            raise InvalidInputError(f"a Backoff has numbers: {self}")
        if not (0.0 < self.first <= self.most <= _DELAY_S_MAX and self.factor >= 1.0):
            raise InvalidInputError(
                f"a Backoff grows from first, above 0, to most, at most {_DELAY_S_MAX:g}: {self}"
            )


class Retry(msgspec.Struct, frozen=True, kw_only=True):
    """The attempts at a message, and what follows the last one.

    Its key waits while attempts last, and other keys go on. `then` is "block": the key waits on,
    with an attempt after each longest wait; "stop": the consumer ends with HandlerError; or
    "dead_letter": the message goes to the subscription's dead letters, and its key goes on. More
    than `letters_max` of the last 1,000 messages end the consumer instead.

    A key that waits in a sealed segment holds up all keys of the children. So once nothing else of
    its bucket is left, a message has `sealed_wait_s` seconds until it goes to the dead letters.
    """

    attempts_max: int = 8
    delay_s: Backoff = Backoff()
    then: Then = "block"
    letters_max: int = 100
    sealed_wait_s: float = 60.0

    def check(self) -> None:
        """Raises InvalidInputError for values that make no sense."""
        if not isinstance(self.delay_s, Backoff):
            raise InvalidInputError(f"delay_s must be a Backoff: {self.delay_s!r}")
        self.delay_s.check()
        for name in ("attempts_max", "letters_max"):
            if not _is_count(count := getattr(self, name)):
                raise InvalidInputError(f"{name} must be at least 1: {count!r}")
        if not (_is_number(self.sealed_wait_s) and self.sealed_wait_s > 0.0):
            raise InvalidInputError(f"sealed_wait_s is above 0: {self.sealed_wait_s!r}")
        if self.then not in get_args(Then):
            raise InvalidInputError(f"then is one of {', '.join(get_args(Then))}: {self.then!r}")


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _is_number(value: Any) -> bool:
    is_one = isinstance(value, int | float) and not isinstance(value, bool)
    return is_one and math.isfinite(value)


class Again(Exception):  # noqa: N818 - raised by a handler as a wish, not as an error
    """A handler raises it to have the message again after `delay_s` seconds, which counts as no
    failed attempt. The key waits.
    """

    def __init__(self, delay_s: float = 1.0) -> None:
        super().__init__(delay_s)
        if not (_is_number(delay_s) and 0.0 <= delay_s <= _DELAY_S_MAX):
            raise InvalidInputError(f"delay_s is 0 to {_DELAY_S_MAX:g}: {delay_s!r}")
        self.delay_s = float(delay_s)


class ComesAgain(Again):
    """A message of a call that failed by another one."""


class BatchFailed(Exception):  # noqa: N818
    """A handler of batches raises it if some of its messages failed. The others are done, but for
    what follows a failed one of the same key in the batch.
    """

    def __init__(self, errors: Mapping[Message, BaseException]) -> None:
        super().__init__(f"{len(errors)} messages of the batch failed")
        self.errors = dict(errors)
        wrong = [each for each in self.errors.values() if not isinstance(each, Exception)]
        if wrong or not self.errors:
            raise InvalidInputError(
                f"BatchFailed has an exception for each failed message, one or more: {wrong[:1]}"
            )


class ProcessEndedError(Exception):
    """A message counts as failed with it if a process has ended with its handler."""


class Reject(Exception):  # noqa: N818
    """A handler raises it when no further attempt can help. Then `Retry.then` counts at once."""
