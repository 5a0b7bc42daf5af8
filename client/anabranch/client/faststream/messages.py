"""`Attempt` and `ReceivedMessage`: what a handler of FastStream gets, and how it is settled.

FastStream acknowledges in a middleware, which catches some errors and passes others on. `run` of
the SDK settles a message by how its handler ends. So `ack`, `nack` and `reject` only note what they
are called for, on the attempt, and `conclude` tells `run` once FastStream has ended with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from faststream.exceptions import IncorrectState, StopConsume
from faststream.message import AckStatus, StreamMessage, decode_message
from faststream.middlewares import AckPolicy

from anabranch.client import Again, Message, Reject, Work

# If nothing was noted, as of a message that cannot be parsed.
_AFTER_ERROR: Final[Mapping[AckPolicy, AckStatus]] = {
    AckPolicy.ACK: AckStatus.ACKED,
    AckPolicy.REJECT_ON_ERROR: AckStatus.REJECTED,
}


class Attempt:
    """One attempt at a message: FastStream's raw message. `settled` is what was noted first."""

    __slots__ = ("again", "message", "settled", "work")

    def __init__(self, message: Message, work: Work) -> None:
        self.message = message
        self.work = work
        self.settled: AckStatus | None = None
        self.again = Again()

    def conclude(self, error: BaseException | None, policy: AckPolicy) -> None:
        """Returns if the message is done, or raises what `run` is to do with it. `error`: raised
        by the handler, or by what belongs to it.
        """
        if isinstance(error, Again | Reject):
            raise error
        settled = self.settled
        if settled is None and error is not None:
            settled = _AFTER_ERROR.get(policy)
        if settled is AckStatus.ACKED:
            return
        if settled is AckStatus.REJECTED:
            raise Reject(*(() if error is None else (repr(error),))) from error
        if isinstance(error, StopConsume | SystemExit):
            raise Again(0.0) from error  # it is the next consumer's
        if error is not None:
            raise error
        if settled is AckStatus.NACKED:
            raise self.again
        raise IncorrectState(
            f"the handler of {self.message!r} ended without ack, nack or reject: call one with "
            "AckPolicy.MANUAL, and raise AckMessage instead of SkipMessage"
        )


class ReceivedMessage(StreamMessage[Attempt]):
    """A message as FastStream's handlers see it. The first of `ack`, `nack`, `reject` counts, once
    the handler has ended.
    """

    @property
    def key(self) -> Any:
        """The key's bytes, or the result of the key's deserializer."""
        return self.raw_message.message.key

    @property
    def work(self) -> Work:
        """The attempt: its number, its id for ever, its deadline."""
        return self.raw_message.work

    async def ack(self) -> None:
        """The message is done."""
        self._settle(AckStatus.ACKED)

    async def nack(self, delay_s: float = 1.0) -> None:
        """The message comes again after that time, which counts as no failed attempt."""
        again = Again(delay_s)
        if self._settle(AckStatus.NACKED):
            self.raw_message.again = again

    async def reject(self) -> None:
        """No further attempt can help, so that `Retry.then` counts at once."""
        self._settle(AckStatus.REJECTED)

    def _settle(self, status: AckStatus) -> bool:
        is_first = self.raw_message.settled is None
        if is_first:
            self.raw_message.settled = status
        self.committed = self.raw_message.settled
        return is_first


async def parse_message(attempt: Attempt) -> ReceivedMessage:
    """Returns FastStream's message. Of headers with one name it has the last."""
    message = attempt.message
    headers = {
        name: data.decode(errors="replace") for name, data in message.headers if data is not None
    }
    value = message.value
    return ReceivedMessage(
        attempt,
        b"" if value is None else value,
        headers=headers,
        content_type=headers.get("content-type"),
        correlation_id=headers.get("correlation_id"),
        message_id=attempt.work.id,
    )


async def decode_body(message: StreamMessage[Attempt]) -> Any:
    """Decodes by the content type. What a `value_deserializer` has made is left as it is."""
    return decode_message(message) if isinstance(message.body, bytes) else message.body
