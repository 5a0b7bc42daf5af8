"""What `run` is told about each end that a handler of FastStream may have."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from faststream import BaseMiddleware, ExceptionMiddleware
from faststream.exceptions import (
    AckMessage,
    IncorrectState,
    NackMessage,
    RejectMessage,
    SkipMessage,
    StopApplication,
    StopConsume,
)
from faststream.middlewares import AckPolicy

from anabranch.client import Again, DecryptionError, Reject
from anabranch.client.faststream import AnabranchBroker, AnabranchMessage, TestAnabranchBroker
from anabranch.client.faststream.messages import Attempt
from support.there import there

ORDERS = "topic://public/default/orders"
_AUTOMATIC = (AckPolicy.ACK, AckPolicy.NACK_ON_ERROR, AckPolicy.REJECT_ON_ERROR)
Does = Callable[[Any], Awaitable[None]]


class AwayError(Exception):
    pass


async def _told(policy: AckPolicy | None, does: Does, *middlewares: Any, **options: Any) -> Any:
    """What the handler of `run` raises if the application's does so, None for a message done."""
    kept: list[Attempt] = []

    class Keeping(BaseMiddleware):
        async def on_receive(self) -> None:
            kept.append(there(self.msg))

    broker = AnabranchBroker("pulsar://node:6650", middlewares=[Keeping, *middlewares])
    if policy is not None:
        options["ack_policy"] = policy

    @broker.subscriber(ORDERS, subscription="billing", **options)
    async def handle(_body: str, message: AnabranchMessage) -> None:
        if len(kept) > 1:
            await does(message)

    (subscriber,) = broker.subscribers
    async with TestAnabranchBroker(broker):
        try:
            await broker.publish("one", ORDERS)
        except (AwayError, DecryptionError):
            assert options.keys() & {"parser", "decrypt"}
        attempt = kept[0]
        try:
            await subscriber._attempt(attempt.message, attempt.work)  # type: ignore[attr-defined]
        except Exception as error:  # noqa: BLE001 - it is looked at
            return error
    return None


def _raising(error: BaseException) -> Does:
    async def does(_message: Any) -> None:
        raise error

    return does


def _calling(*names: str, error: Exception | None = None, **options: Any) -> Does:
    async def does(message: Any) -> None:
        for name in names:
            await getattr(message, name)(**options)
        if error is not None:
            raise error

    return does


@pytest.mark.parametrize("policy", [None, AckPolicy.NACK_ON_ERROR])
async def test_a_handler_that_raises_has_failed_and_one_that_returns_is_done(
    policy: AckPolicy | None,
) -> None:
    assert await _told(policy, _calling()) is None
    assert isinstance(await _told(policy, _raising(AwayError())), AwayError)


def _is_again(told: Any, delay_s: float) -> bool:
    return isinstance(told, Again) and told.delay_s == delay_s


@pytest.mark.parametrize("policy", _AUTOMATIC)
async def test_words_of_faststream_count_with_every_policy(policy: AckPolicy) -> None:
    assert await _told(policy, _raising(AckMessage())) is None
    assert _is_again(await _told(policy, _raising(NackMessage())), 1.0)
    assert _is_again(await _told(policy, _raising(NackMessage(delay_s=3))), 3.0)
    assert isinstance(await _told(policy, _raising(RejectMessage())), Reject)


@pytest.mark.parametrize("policy", [*_AUTOMATIC, AckPolicy.MANUAL])
async def test_words_of_the_sdk_count_with_every_policy(policy: AckPolicy) -> None:
    assert _is_again(await _told(policy, _raising(Again(4.0))), 4.0)
    assert isinstance(await _told(policy, _raising(Reject())), Reject)


async def test_ack_has_messages_done_after_errors_and_reject_on_error_has_them_rejected() -> None:
    assert await _told(AckPolicy.ACK, _raising(AwayError())) is None
    told = await _told(AckPolicy.REJECT_ON_ERROR, _raising(AwayError("db")))
    assert isinstance(told, Reject)
    assert "AwayError('db')" in str(told)


def _fails(*_given: Any) -> Any:
    raise AwayError


@pytest.mark.parametrize("broken", ["parser", "decrypt"])
async def test_a_message_that_cannot_be_parsed_has_failed_as_one_whose_handler_does(
    broken: str,
) -> None:
    """FastStream parses it once more to settle it. That may fail, too."""
    for policy, kind in (
        (None, AwayError if broken == "parser" else DecryptionError),
        (AckPolicy.MANUAL, AwayError if broken == "parser" else DecryptionError),
        (AckPolicy.REJECT_ON_ERROR, Reject),
        (AckPolicy.ACK, type(None)),
    ):
        assert isinstance(await _told(policy, _calling(), **{broken: _fails}), kind)


async def test_the_first_of_ack_nack_and_reject_counts_and_none_is_a_failure() -> None:
    manual = AckPolicy.MANUAL
    assert await _told(manual, _calling("ack", "nack", "reject")) is None
    assert await _told(manual, _calling("ack", error=AwayError())) is None
    assert _is_again(await _told(manual, _calling("nack", "ack")), 1.0)
    assert _is_again(await _told(manual, _calling("nack", delay_s=9)), 9.0)
    assert isinstance(await _told(manual, _calling("reject", error=AwayError())), Reject)
    assert isinstance(await _told(None, _calling("reject")), Reject)
    assert isinstance(await _told(manual, _calling(error=AwayError())), AwayError)
    for policy, does in ((manual, _calling()), (None, _raising(SkipMessage()))):
        told = await _told(policy, does)
        assert isinstance(told, IncorrectState)
        assert "without ack, nack or reject" in str(told)


async def test_a_wait_that_is_none_loses_nothing() -> None:
    told = await _told(None, _raising(NackMessage(delay_s=-1)))
    assert isinstance(told, IncorrectState)


@pytest.mark.parametrize("error", [StopConsume(), StopApplication()])
async def test_a_handler_that_stops_leaves_its_message_to_the_next_consumer(
    error: BaseException,
) -> None:
    assert _is_again(await _told(None, _raising(error)), 0.0)
    assert await _told(AckPolicy.ACK, _raising(error)) is None


async def test_an_error_that_a_middleware_has_handled_is_none() -> None:
    handled = ExceptionMiddleware({AwayError: lambda _: None})
    assert await _told(None, _raising(AwayError()), handled) is None
