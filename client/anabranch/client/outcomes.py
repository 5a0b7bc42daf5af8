"""`Outcomes`: who is told what became of a producer's messages."""

from __future__ import annotations

from anabranch.client.errors import DeliveryError
from anabranch.client.flows import Held
from anabranch.client.messages import DeliveryResult, OnDelivery
from anabranch.wire.log import get_logger

_log = get_logger(__name__)


class Outcomes:
    """Of the messages to `topic`, a URL. Whoever waits is told by `tell`: not inside of a poll,
    where nothing may be sent.
    """

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self._untold: list[tuple[OnDelivery, DeliveryResult | None, Exception | None]] = []
        self._failed_count = 0  # of messages nobody waits for
        self._first_failure: Exception | None = None

    def delivered(self, held: Held, result: DeliveryResult) -> None:
        """Kafka has the message, for which somebody waits."""
        self._untold.append((held.on_delivery, result, None))

    def failed(self, held: Held, error: Exception) -> None:
        """The message is given up."""
        if held.on_delivery is not None:
            self._untold.append((held.on_delivery, None, error))
            return
        self._failed_count += 1
        self._first_failure = self._first_failure or error

    def tell(self) -> None:
        """Calls those who wait."""
        untold, self._untold = self._untold, []
        for on_delivery, result, error in untold:
            try:
                on_delivery(result, error)
            except Exception as fault:  # noqa: BLE001 - the user's, who is told by the log
                _log.error("producer.callback_failed", topic=self._topic, exc_info=fault)

    def raise_failures(self) -> None:
        """Raises DeliveryError if messages failed for which nobody waits; once for each."""
        count, first = self._failed_count, self._first_failure
        if count:
            self._failed_count, self._first_failure = 0, None
            raise DeliveryError(f"{count} messages failed, the first: {first}") from first
