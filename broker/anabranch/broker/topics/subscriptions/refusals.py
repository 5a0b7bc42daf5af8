"""Why a consumer is not served, or no more, in words that say what to do."""

from __future__ import annotations

from anabranch.broker.errors import ConflictError, NotFoundError, OperationError, UnavailableError
from anabranch.core.entities.subscription import Subscription
from anabranch.core.names import full_name
from anabranch.core.subscriptions.admission import AdmissionStep, SubscribeRequest


class ConsumerFencedError(ConflictError):
    """Another process has taken the name over."""


class SessionOverError(NotFoundError):
    """The controller does not count on this consumer any more: it must subscribe again."""


class SubscriptionGoneError(NotFoundError):
    """The subscription was deleted, and its consumers' sessions with it; another may be there."""


def taken_over(asked: SubscribeRequest) -> str:
    """Returns the text for the process that had the name."""
    return (
        f"another process has taken over the name {asked.consumer} in {_what(asked)}: give each "
        "one its own name"
    )


def refusal(
    asked: SubscribeRequest, step: AdmissionStep, known: Subscription | None
) -> OperationError:
    """Returns the error that refuses a consumer at this step; full limits have their own."""
    what, who = _what(asked), asked.consumer
    match step:
        case AdmissionStep.DELETED:
            return SubscriptionGoneError(f"{what} was deleted")
        case AdmissionStep.REPLACED:
            return SubscriptionGoneError(
                f"{what} was deleted and made again, or put somewhere else, while consumer {who} "
                "was away: subscribe again with a new consumer"
            )
        case AdmissionStep.OTHER_KIND if known is not None:
            return ConflictError(
                f"{what} is of type {known.kind.name}: use it as such, or another subscription"
            )
        case AdmissionStep.FENCED:
            return ConsumerFencedError(taken_over(asked))
        case _:
            return UnavailableError(
                f"another process was consumer {who} of {full_name(asked.topic)} and may be "
                "serving yet: try again until it has left, or its session has lapsed"
            )


def _what(asked: SubscribeRequest) -> str:
    return f"subscription {asked.subscription} of {full_name(asked.topic)}"
