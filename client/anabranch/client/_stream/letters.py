"""`Letters`: what a stream's handlers could not process goes to the subscription's dead letters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from anabranch.client._consumer.dead_letters import (
    DeadLetter,
    DeadLetterReason,
    DeadLetterSender,
    Produce,
    said,
)
from anabranch.client._consumer.messages import Message
from anabranch.client._errors import SubscriptionError
from anabranch.client._settings import DeadLetterPolicy
from anabranch.client._stream.retry import ProcessEndedError, Reject

_REASONS: Final = (
    (Reject, DeadLetterReason.REJECTED),
    (ProcessEndedError, DeadLetterReason.KILLED),
)
_OTHERS: Final = DeadLetterReason.ATTEMPTS


class Letters:
    """Puts messages of one consumer aside. `policy` returns that of the subscription now."""

    def __init__(
        self,
        who: tuple[str, str],
        produce: Produce,
        policy: Callable[[], DeadLetterPolicy | None],
    ) -> None:
        self.topic, self._subscription = who
        self._sender = DeadLetterSender(who, produce)
        self._policy = policy

    async def put(self, message: Message, attempts: int, error: BaseException) -> DeadLetter:
        """Returns the letter once Kafka has it. Raises the errors of a producer, and
        SubscriptionError if the subscription has no dead letters any more.
        """
        policy = self._policy()
        if policy is None:
            raise SubscriptionError(
                f"subscription {self._subscription} of {self.topic} has no dead letters any more: "
                "set its policy again"
            )
        reason = next((why for kind, why in _REASONS if isinstance(error, kind)), _OTHERS)
        letter = DeadLetter.about(self._subscription, message, attempts, reason, said(error))
        await self._sender.send(policy.topic, message.raw, letter)
        return letter

    async def close(self) -> None:
        await self._sender.close()
