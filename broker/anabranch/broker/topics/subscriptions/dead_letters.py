"""A subscription's topic for messages that its consumers cannot process.

Consumers send dead letters themselves (`anabranch.client._consumer.dead_letters`). So the
topic for them has to be there before the log says that it is to be used.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final
from urllib.parse import quote, urlsplit

import msgspec

from anabranch.broker.errors import (
    ConflictError,
    ElsewhereError,
    OperationError,
    PreconditionError,
    UnavailableError,
)
from anabranch.broker.logging import get_logger
from anabranch.broker.requester import principal, requester
from anabranch.broker.security.guard import AccessGuard
from anabranch.broker.security.outgoing import OutgoingAccess
from anabranch.broker.topics.subscriptions.changes import Subscriptions
from anabranch.broker.topics.subscriptions.consumers import ConsumerRequest
from anabranch.core.entities.subscription import (
    DELIVERIES,
    DELIVERIES_MAX,
    Subscription,
    SubscriptionKind,
    SubscriptionOp,
    dead_letter_topic,
)
from anabranch.core.names import full_name, parse_scalable_topic
from anabranch.core.security.actions import PRODUCING
from anabranch.core.security.resources import topic_resource
from anabranch.core.security.table import CREATING_TOPICS

_Create = Callable[[str, int, Mapping[str, str]], Awaitable[None]]
_CONNECT_S_MAX: Final = 5.0
_CONFLICT: Final = 409  # it is there
_REDIRECTS: Final = (307, 308)


class DeadLettersWanted(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A topic for messages that a subscription cannot process, and a queue's number of tries; ours.

    The topic, `[topic://]tenant/namespace/name`, is a scalable one, made if it is not there;
    TOPIC-SUBSCRIPTION-DLQ if left. A queue tries 5 times if that is left. A stream has no number,
    since the handlers of its consumers count attempts.
    """

    dead_letter_topic: str = ""
    max_deliveries: int | None = None


class DeadLetterPolicies:
    """The policies of this node's topics, for use in its event loop."""

    def __init__(
        self, subscriptions: Subscriptions, create: _Create, outgoing: OutgoingAccess
    ) -> None:
        self._access = subscriptions.access
        self._subscriptions = subscriptions
        self._create = create
        self._outgoing = outgoing
        self._log = get_logger()

    async def make(
        self, asked: ConsumerRequest, policy: DeadLettersWanted, guard: AccessGuard | None
    ) -> None:
        """Does what `set` does, for a consumer whose subscription may not be there yet."""
        topic, subscription = asked.topic, asked.subscription
        self._access.topic(topic)
        self._access.must_control(topic)
        wanted = self._checked(topic, subscription, asked.kind, policy)
        known = self._access.runtime.view.subscription(topic, subscription)
        if known is None or _policy_of(known) != wanted:
            self._must_be_theirs(wanted[0], guard)
        await self._subscriptions.create(topic, subscription, asked.kind, asked.start_ms)
        await self.set(topic, subscription, policy, guard)

    async def set(
        self,
        topic: str,
        subscription: str,
        policy: DeadLettersWanted | None,
        guard: AccessGuard | None,
    ) -> None:
        """Changes it, None for no dead letters; its consumers subscribe again, to hear of it.

        `guard`: asked if the principal may produce to the topic of the dead letters, and create
        it if it is not there; None: it is not asked. Raises NotFoundError, PreconditionError,
        ForbiddenError, UnavailableError.
        """
        known = self._subscriptions.known(topic, subscription)
        where, tries = "", 0
        if policy is not None:
            where, tries = self._checked(topic, subscription, known.kind, policy)
        if _policy_of(known) == (where, tries):
            return
        if where:
            self._must_be_theirs(where, guard)
            await self._must_exist(where)
        timeout_s = self._access.settings.now.operation_timeout_s
        async with self._subscriptions.alone(topic, subscription, timeout_s):
            op = SubscriptionOp.DEAD_LETTER
            await self._subscriptions.change(
                topic, subscription, op, dead_letter=where, deliveries_max=tries
            )
            self._subscriptions.dismiss(
                topic, subscription, "has another topic for its dead letters"
            )
        self._log.info(
            "subscription.dead_letter_set",
            topic=topic,
            subscription=subscription,
            dead_letter=where,
            deliveries_max=tries,
        )

    def _checked(
        self, topic: str, subscription: str, kind: SubscriptionKind, policy: DeadLettersWanted
    ) -> tuple[str, int]:
        """The topic's bare name and the tries. Raises PreconditionError, InvalidInputError."""
        what, tries = f"subscription {subscription} of {full_name(topic)}", policy.max_deliveries
        if kind is SubscriptionKind.CHECKPOINT:
            raise PreconditionError(
                f"{what} is of type {kind.name}: only queues and streams have dead letters"
            )
        if kind is SubscriptionKind.STREAM:
            if tries is not None:
                raise PreconditionError(
                    f"{what} is a stream, whose consumers count attempts (Retry.attempts_max of "
                    "run): leave the number of deliveries out"
                )
            tries = 0
        elif tries is None:
            tries = DELIVERIES
        elif not 0 < tries <= DELIVERIES_MAX:
            raise PreconditionError(
                f"the deliveries before a message is put aside are 1 to {DELIVERIES_MAX}, not "
                f"{tries}: Kafka discards it after {DELIVERIES_MAX + 1}"
            )
        where = parse_scalable_topic(
            policy.dead_letter_topic or dead_letter_topic(topic, subscription)
        )
        if where == topic:
            raise PreconditionError(f"{what} cannot have its own topic for its dead letters")
        return where, tries

    def _must_be_theirs(self, where: str, guard: AccessGuard | None) -> None:
        """Refuses to do for a principal what it could not do itself. Raises as `AccessGuard.check`.

        The principal needs the right to produce to the topic, because its consumers send the dead
        letters. If the topic is not there, it needs the right to create it.
        """
        if guard is None:
            return
        is_there = self._access.runtime.view.topic(where) is not None
        need, what = (
            (PRODUCING, "send dead letters there")
            if is_there
            else (CREATING_TOPICS, "create a topic for dead letters")
        )
        guard.check(requester(), need, topic_resource(where), what)

    async def _must_exist(self, where: str) -> None:
        """Creates the topic, here or at the node that controls it, unless it is there."""
        if self._access.runtime.view.topic(where) is not None:
            return
        try:
            await self._create(where, 1, {})
        except ConflictError:
            return  # it is there
        except ElsewhereError as error:
            timeout_s = self._access.settings.now.operation_timeout_s
            await create_elsewhere(self._outgoing, where, error, timeout_s)


def _policy_of(known: Subscription) -> tuple[str, int]:
    return known.dead_letter, known.deliveries_max


async def create_elsewhere(
    outgoing: OutgoingAccess, name: str, at: ElsewhereError, timeout_s: float
) -> None:
    """Creates the topic at the node that would control it, unless it is there.

    This node shows its credentials, and names the principal that it asks for, whose right the other
    node judges. It uses TLS if that node has it. Raises UnavailableError.
    """
    from anabranch.broker.node_http import NodeHttp, NodeRequest, reason_in  # takes memory

    where = urlsplit(at.web_url_tls or at.web_url)
    shown = outgoing.credentials
    if shown is not None and where.scheme != "https":
        get_logger().warning(
            "security.not_encrypted",
            methods=shown.method,
            why=f"node {where.netloc} is asked without TLS: a listener can take the credentials",
            remedy="set webServicePortTls on every node",
        )
    await outgoing.look()  # nothing else does
    http = NodeHttp(_CONNECT_S_MAX, timeout_s, outgoing, is_tls=where.scheme == "https")
    path = f"/admin/v2/scalable/{quote(name)}"
    asked = NodeRequest("PUT", path.encode(), asker=principal())
    try:
        answer = await http.ask(where.netloc, asked)
        body = await answer.whole()
    except OperationError as error:
        raise _not_made(name, error.reason) from None
    finally:
        await http.close()
    if answer.status in _REDIRECTS:
        raise _not_made(name, f"node {where.netloc} does not control it any more")
    if answer.status >= 400 and answer.status != _CONFLICT:
        raise _not_made(name, f"node {where.netloc} says: {reason_in(body)}")


def _not_made(name: str, why: str) -> UnavailableError:
    return UnavailableError(
        f"the topic for the dead letters, {full_name(name)}, was not created: {why}; try again, or "
        "create it first"
    )
