"""Operations on subscriptions of scalable topics."""

from __future__ import annotations

from datetime import datetime
from typing import Final, Literal

import msgspec

from anabranch.admin.calls import Call, nothing
from anabranch.admin.scalable_models import DeadLetterPolicy, SubscriptionType
from anabranch.admin.topic_calls import topic_path
from anabranch.core import names
from anabranch.core.errors import InvalidInputError
from anabranch.core.subscriptions.subscription import DELIVERIES

Place = datetime | Literal["earliest", "latest"]  # of messages, by their time

_DEAD_LETTERS: Final = msgspec.json.Decoder(DeadLetterPolicy).decode


def _path(topic: str, subscription: str, *more: str) -> str:
    return topic_path(topic, "subscriptions", names.subscription(subscription), *more)


def _query(place: Place) -> dict[str, str | list[str]]:
    """Raises InvalidInputError for a time without a zone, or before 1970."""
    if isinstance(place, str):
        return {"position": place}
    if place.tzinfo is None:
        raise InvalidInputError(f"the time {place} has no zone: give it one, such as timezone.utc")
    milliseconds = round(place.timestamp() * 1000)
    if milliseconds < 0:
        raise InvalidInputError(f"the time {place} is before 1970")
    return {"timestamp": str(milliseconds)}


def create_subscription(
    topic: str, subscription: str, kind: SubscriptionType = "STREAM", start: Place = "earliest"
) -> Call[None]:
    """Creates a subscription that begins at the messages of that time or later.

    One that is there is left as it is, whatever its kind and its place.
    """
    query = {"type": kind, **_query(start)}
    return Call("PUT", _path(topic, subscription), nothing, query)


def delete_subscription(topic: str, subscription: str, *, force: bool = False) -> Call[None]:
    """Deletes a subscription with its positions; `force`: also if it has consumers, which end."""
    query: dict[str, str | list[str]] = {"force": "true"} if force else {}
    return Call("DELETE", _path(topic, subscription), nothing, query)


def seek_subscription(topic: str, subscription: str, to: Place) -> Call[None]:
    """Goes on with the messages of that time or later; its consumers subscribe again."""
    return Call("POST", _path(topic, subscription, "seek"), nothing, _query(to))


def skip_all(topic: str, subscription: str) -> Call[None]:
    """Leaves out all that is in the topic now; its consumers subscribe again."""
    return Call("POST", _path(topic, subscription, "skip-all"), nothing)


def get_dead_letter_policy(topic: str, subscription: str) -> Call[DeadLetterPolicy | None]:
    """Where a queue subscription puts what nobody could process; None: nowhere."""
    return Call("GET", _path(topic, subscription, "deadLetterPolicy"), _dead_letters)


def set_dead_letter_policy(
    topic: str, subscription: str, max_deliveries: int = DELIVERIES, dead_letter_topic: str = ""
) -> Call[None]:
    """Lets a queue subscription put aside what was delivered so often in vain.

    Without a topic it is `{topic}-{subscription}-DLQ`; one that is not there is made.
    """
    body = {"maxDeliveries": max_deliveries, "deadLetterTopic": dead_letter_topic}
    return Call("PUT", _path(topic, subscription, "deadLetterPolicy"), nothing, body=body)


def remove_dead_letter_policy(topic: str, subscription: str) -> Call[None]:
    """Puts nothing aside any more: Kafka discards what was given out ten times in vain."""
    return Call("DELETE", _path(topic, subscription, "deadLetterPolicy"), nothing)


def _dead_letters(body: bytes) -> DeadLetterPolicy | None:
    return _DEAD_LETTERS(body) if body else None
