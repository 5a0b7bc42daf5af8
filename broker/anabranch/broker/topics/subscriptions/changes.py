"""Changes of a subscription that is there: its positions, and the topic for its dead letters.

One record puts a subscription somewhere else, for all its consumers at once: it begins anew, under
the same Kafka group. The commit of a consumer that was there before says so, and is not believed.
So the change waits for no consumer, and none can undo it. Only a queue gets another group, since
Kafka keeps no such word with its positions.

A queue's consumers send dead letters themselves (`anabranch.client._queue.dead_letters`). So the
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
    KafkaFailedError,
    OperationError,
    PreconditionError,
    UnavailableError,
)
from anabranch.broker.logging import get_logger
from anabranch.broker.node_http import NodeHttp, NodeRequest, reason_in
from anabranch.broker.requester import principal, requester
from anabranch.broker.security.guard import AccessGuard
from anabranch.broker.security.outgoing import OutgoingAccess
from anabranch.broker.topics.controllers.access import TopicAccess
from anabranch.broker.topics.subscriptions.consumers import ConsumerRequest, Consumers
from anabranch.channel.kafka.offsets import EARLIEST
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


class Resets:
    """The requests of one node, as a controller, for use in its event loop."""

    def __init__(
        self,
        access: TopicAccess,
        consumers: Consumers,
    ) -> None:
        self._access = access
        self._consumers = consumers
        self._usage = consumers.usage
        self._log = get_logger(broker=access.runtime.core.me)

    async def reset(self, topic: str, subscription: str, timestamp_ms: int) -> None:
        """Lets a subscription begin at the messages of that time or a later one, at EARLIEST, or at
        LATEST.

        Its consumers are told to subscribe again. No one else changes the subscription until all of
        it is over. Raises NotFoundError, and PreconditionError for a kind whose positions are not
        the controller's.

        Raises ConflictError for a queue that is being consumed, or may be, and for a subscription
        that was deleted meanwhile and made anew. Raises KafkaFailedError or UnavailableError when
        Kafka does not do its part, or not in time.
        """
        timeout_s = self._access.settings.now.operation_timeout_s
        async with self._consumers.alone(topic, subscription, timeout_s):
            before = self._consumers.known(topic, subscription)
            self._must_be_movable(topic, subscription, before)
            if before.kind is SubscriptionKind.QUEUE and timestamp_ms != EARLIEST:
                await self._consumers.must_place_queues(topic, subscription)
            begin = await self._consumers.beginning(topic, timestamp_ms, before.kind)
            why = f"subscription {subscription} of {full_name(topic)} was put somewhere else"
            self._access.service.dismiss({topic}, why, subscription)
            op = SubscriptionOp.RESET
            moved = await self._consumers.change(topic, subscription, op, begin=begin, of=before)
            # It was deleted meanwhile, with its topic, where it is not known any more.
            self._consumers.known(topic, subscription)
            if moved is None:
                raise ConflictError(
                    f"subscription {subscription} of {full_name(topic)} was deleted meanwhile, and "
                    "made anew: try again"
                )
            if before.kind is SubscriptionKind.QUEUE:
                await self._start_share_group(topic, subscription)
        self._log.info(
            "subscription.reset", topic=topic, subscription=subscription, to=timestamp_ms
        )
        if before.kind is SubscriptionKind.QUEUE:
            former = self._access.group_id(topic, subscription, before)
            self._consumers.groups.delete(former)

    async def _start_share_group(self, topic: str, subscription: str) -> None:
        """Starts the share group; a consumer that subscribes does so, too."""
        known = self._consumers.known(topic, subscription)
        try:
            await self._consumers.start_share_group(topic, subscription, known)
        except (KafkaFailedError, UnavailableError) as error:
            raise type(error)(
                f"subscription {subscription} of {full_name(topic)} was put somewhere else, and "
                f"begins there once Kafka has made its group: {error.reason}"
            ) from None

    def _must_be_movable(self, topic: str, subscription: str, known: Subscription) -> None:
        if known.kind is SubscriptionKind.CHECKPOINT:
            raise PreconditionError(
                f"subscription {subscription} of {full_name(topic)} is of type CHECKPOINT: its "
                "consumers keep their positions themselves; give them the ones to begin at"
            )
        if known.kind is SubscriptionKind.QUEUE:
            # A queue's consumers are registered nowhere, and would go on where they are.
            self._usage.must_be_unused(topic, subscription, known, "")


class DeadLetterSettings(msgspec.Struct, frozen=True):
    """`topic`: `[topic://]tenant/namespace/name`, empty for the conventional one.

    `deliveries_max`: the number of deliveries to the application after which a message goes there.
    """

    topic: str = ""
    deliveries_max: int = DELIVERIES


class DeadLetterPolicies:
    """The policies of this node's topics, for use in its event loop."""

    def __init__(
        self, access: TopicAccess, consumers: Consumers, create: _Create, outgoing: OutgoingAccess
    ) -> None:
        self._access = access
        self._consumers = consumers
        self._create = create
        self._outgoing = outgoing
        self._log = get_logger()

    def of(self, topic: str, subscription: str) -> DeadLetterSettings | None:
        """Returns the log's settings. Raises NotFoundError."""
        known = self._consumers.known(topic, subscription)
        if not known.deliveries_max:
            return None
        return DeadLetterSettings(full_name(known.dead_letter), known.deliveries_max)

    async def make(
        self, asked: ConsumerRequest, policy: DeadLetterSettings, guard: AccessGuard | None
    ) -> None:
        """Does what `set` does, for a consumer whose subscription may not be there yet."""
        topic, subscription = asked.topic, asked.subscription
        self._consumers.must_control(topic)
        where = self._checked(topic, subscription, asked.kind, policy)
        known = self._consumers.view.subscription(topic, subscription)
        if known is None or _policy_of(known) != (where, policy.deliveries_max):
            self._must_be_theirs(where, guard)
        await self._consumers.create(topic, subscription, asked.kind, asked.start_ms)
        await self.set(topic, subscription, policy, guard)

    async def set(
        self,
        topic: str,
        subscription: str,
        policy: DeadLetterSettings | None,
        guard: AccessGuard | None,
    ) -> None:
        """Changes it, None for no dead letters; its consumers subscribe again, to hear of it.

        `guard`: asked if the principal may produce to the topic of the dead letters, and create
        it if it is not there; None: it is not asked. Raises NotFoundError, PreconditionError,
        ForbiddenError, UnavailableError.
        """
        known = self._consumers.known(topic, subscription)
        where = "" if policy is None else self._checked(topic, subscription, known.kind, policy)
        tries = 0 if policy is None else policy.deliveries_max
        if _policy_of(known) == (where, tries):
            return
        if where:
            self._must_be_theirs(where, guard)
            await self._must_exist(where)
        timeout_s = self._access.settings.now.operation_timeout_s
        async with self._consumers.alone(topic, subscription, timeout_s):
            op = SubscriptionOp.DEAD_LETTER
            await self._consumers.change(
                topic, subscription, op, dead_letter=where, deliveries_max=tries
            )
            self._consumers.dismiss(
                topic, subscription, "the topic for its dead letters was changed"
            )
        self._log.info(
            "subscription.dead_letter_set",
            topic=topic,
            subscription=subscription,
            dead_letter=where,
            deliveries_max=tries,
        )

    def _checked(
        self, topic: str, subscription: str, kind: SubscriptionKind, policy: DeadLetterSettings
    ) -> str:
        """The topic's bare name. Raises PreconditionError, InvalidInputError."""
        what = f"subscription {subscription} of {full_name(topic)}"
        if kind is not SubscriptionKind.QUEUE:
            raise PreconditionError(
                f"{what} is of type {kind.name}: only those of type QUEUE have dead letters"
            )
        if not 0 < policy.deliveries_max <= DELIVERIES_MAX:
            raise PreconditionError(
                f"the deliveries before a message is put aside are 1 to {DELIVERIES_MAX}, not "
                f"{policy.deliveries_max}: Kafka discards it after {DELIVERIES_MAX + 1}"
            )
        where = parse_scalable_topic(policy.topic or dead_letter_topic(topic, subscription))
        if where == topic:
            raise PreconditionError(f"{what} cannot have its own topic for its dead letters")
        return where

    def _must_be_theirs(self, where: str, guard: AccessGuard | None) -> None:
        """Refuses to do for a principal what it could not do itself. Raises as `AccessGuard.check`.

        The principal needs the right to produce to the topic, because its consumers send the dead
        letters. If the topic is not there, it needs the right to create it.
        """
        if guard is None:
            return
        is_there = self._consumers.view.topic(where) is not None
        need, what = (
            (PRODUCING, "send dead letters there")
            if is_there
            else (CREATING_TOPICS, "create a topic for dead letters")
        )
        guard.check(requester(), need, topic_resource(where), what)

    async def _must_exist(self, where: str) -> None:
        """Creates the topic, here or at the node that controls it, unless it is there."""
        if self._consumers.view.topic(where) is not None:
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
        body = await http.whole(answer)
    except OperationError as error:
        raise _not_made(name, error.reason) from None
    finally:
        http.close()
    if answer.status in _REDIRECTS:
        raise _not_made(name, f"node {where.netloc} does not control it any more")
    if answer.status >= 400 and answer.status != _CONFLICT:
        raise _not_made(name, f"node {where.netloc} says: {reason_in(body)}")


def _not_made(name: str, why: str) -> UnavailableError:
    return UnavailableError(
        f"the topic for the dead letters, {full_name(name)}, was not created: {why}; try again, or "
        "create it first"
    )
