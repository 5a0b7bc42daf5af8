"""The settings of `StreamConsumer.run`."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, Final, Literal, TypedDict, get_args

import msgspec

from anabranch.client._consumer.messages import Message
from anabranch.client._stream.retry import Retry
from anabranch.client._stream.work import Work
from anabranch.core.errors import InvalidInputError

Handler = Callable[[Message, Work], Any]
AsyncHandler = Callable[..., Awaitable[Any]]  # of either kind
Ordering = Literal["key", "bucket", "none"]
BatchOf = Literal["key", "bucket"]
BatchHandler = Callable[[list[tuple[Message, Work]]], Any]

_CONCURRENCY_MAX: Final = 10_000
_THREADS_MAX: Final = 256
CANCEL_S: Final = 2.0  # before a bucket has to be given up, its handlers are cancelled


class BatchSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How messages are put together for one call of a handler.

    At most `batch_max` messages `of` one "key", or of one "bucket" and then in the order of each
    key. A batch that is not full waits `wait_s` seconds for more, in its slot.
    """

    batch_max: int = 100
    wait_s: float = 0.05
    of: BatchOf = "key"

    def check(self, ordering: Ordering) -> None:
        """Raises InvalidInputError."""
        if not 1 <= self.batch_max <= _CONCURRENCY_MAX:
            raise InvalidInputError(f"batch_max is 1 to {_CONCURRENCY_MAX}: {self.batch_max}")
        if not 0.0 <= self.wait_s <= CANCEL_S:
            raise InvalidInputError(f"wait_s is 0 to {CANCEL_S:g}: {self.wait_s}")
        if self.of not in get_args(BatchOf):
            raise InvalidInputError(f"of is one of {', '.join(get_args(BatchOf))}: {self.of!r}")
        if self.of == "key" and ordering == "none":
            raise InvalidInputError("ordering='none' has batches of='bucket'")


class RunOptions(TypedDict, total=False):
    """The settings of `RunSettings`, as keyword arguments."""

    concurrency: int
    ordering: Ordering
    timeout_s: float | None
    retry: Retry
    key_of: Callable[[Message], Hashable] | None
    queued_max: int
    queued_bytes_max: int


class RunSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How messages are worked on.

    `ordering`: "key" works on the messages of a key one after the other, and on keys side by side;
    those without a key are free. "bucket" has one at a time in a bucket, "none" no order.
    `concurrency` handlers run at once. `timeout_s` is the longest time of one attempt.
    `key_of(message)` names another lane than the key's; only what is coarser than keys keeps their
    order. `queued_max` messages and `queued_bytes_max` bytes are read ahead, shared by buckets.
    """

    concurrency: int = 100
    ordering: Ordering = "key"
    timeout_s: float | None = None
    retry: Retry = Retry()
    key_of: Callable[[Message], Hashable] | None = None
    queued_max: int = 10_000
    queued_bytes_max: int = 64 * 1024 * 1024

    def check(self, handler: Any, settle_s: float) -> None:
        """Raises InvalidInputError. `settle_s`: for which a bucket that is taken away is kept."""
        check_handler(handler, self.concurrency)
        if self.ordering not in get_args(Ordering):
            words = ", ".join(get_args(Ordering))
            raise InvalidInputError(f"ordering is one of {words}: {self.ordering!r}")
        if self.key_of is not None and self.ordering != "key":
            raise InvalidInputError("key_of goes with ordering='key'")
        if not isinstance(self.retry, Retry):
            raise InvalidInputError(f"retry must be a Retry: {self.retry!r}")
        self.retry.check()
        if min(self.queued_max, self.queued_bytes_max) < 1:
            raise InvalidInputError("queued_max and queued_bytes_max are at least 1")
        if self.timeout_s is not None and not 0.0 < self.timeout_s <= settle_s - CANCEL_S:
            raise InvalidInputError(
                f"timeout_s is above 0, and at most settle_timeout_s - {CANCEL_S:g} s, so that an "
                f"attempt ends before its bucket goes: {self.timeout_s}; raise settle_timeout_s"
            )


def check_handler(handler: Any, concurrency: int) -> None:
    """Raises InvalidInputError if so many of it cannot run at once."""
    if not callable(handler):
        raise InvalidInputError(f"a handler is a function (message, work): {handler!r}")
    most = _CONCURRENCY_MAX if is_async(handler) else _THREADS_MAX
    if not 1 <= concurrency <= most:
        raise InvalidInputError(
            f"concurrency is 1 to {_CONCURRENCY_MAX} for async handlers, and to {_THREADS_MAX} "
            f"for others, which have a thread each: {concurrency}"
        )


def is_async(handler: Any) -> bool:
    """Tells whether it is an async function, or an object that is called as one."""
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(
        getattr(type(handler), "__call__", None)  # noqa: B004 - the method itself is looked at
    )
