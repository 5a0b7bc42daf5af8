"""`ConsumerSession`: a consumer's talk with its controller. `ConsumerCore` decides its content.

The session has a connection of its own, so that its end is the consumer's and nobody else's. It
connects to the node that was named last as the controller. If that node is not there, or is the
controller no more, it asks any node for the controller.

Every connection begins with a Subscribe that names the held and drained buckets. Then reports go
out one at a time. Each is answered, or the session gives up the connection. So does the goodbye. A
consumer that closes without a connection makes one for it, since its share would stay with it for
the grace period.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import math
from collections.abc import Callable
from typing import Final

import msgspec

from anabranch.client._aio import rest
from anabranch.client._consumer.assignment import assignment_of, by_segment, policy_form
from anabranch.client._consumer.core import ConsumerCore
from anabranch.client._consumer.holding import Loss
from anabranch.client._errors import (
    AuthenticationError,
    ClientError,
    ConsumerBusyError,
    ConsumerFencedError,
    ForbiddenError,
    NodesUnreachableError,
    RefusedByNodeError,
    SubscriptionError,
    TopicNotFoundError,
)
from anabranch.client._settings import EARLIEST, DeadLetterPolicy
from anabranch.client._topics.nodes import PASSING, NodeConnection, Nodes, parse_url
from anabranch.client._topics.watch import LayoutWatch
from anabranch.core import names
from anabranch.core.errors import InvalidInputError
from anabranch.wire.anabranch_pb2 import (
    BaseCommand,
    CommandLookupTopic,
    CommandScalableConsumerReport,
    CommandScalableTopicSubscribe,
    CommandScalableTopicUnsubscribe,
    ScalableConsumerType,
    ServerError,
)
from anabranch.wire.errors import RefusedError, WireError
from anabranch.wire.logging import EventLog, get_logger

_RETRY_S_MIN: Final = 0.02
_RETRY_S_MAX: Final = 1.0
_ANSWER_S_MAX: Final = 5.0
_CONNECT_S_MAX: Final = 3.0
_ids = itertools.count(1)  # unique in this process, which is more than a connection needs
# All other answers are final.
_PASSING: Final = PASSING | {ServerError.ConsumerNotFound, ServerError.ConsumerAssignError}
_ERRORS: Final[dict[int, type[ClientError]]] = {
    ServerError.ConsumerBusy: ConsumerBusyError,
    ServerError.ConsumerFenced: ConsumerFencedError,
    ServerError.TopicNotFound: TopicNotFoundError,
    ServerError.SubscriptionNotFound: SubscriptionError,
    ServerError.NotAllowedError: SubscriptionError,
    ServerError.AuthorizationError: ForbiddenError,
}

_logger = get_logger(__name__)


class Identity(msgspec.Struct, frozen=True):
    """Names a consumer. `instance` distinguishes it from all others of the name, for ever."""

    topic: str  # tenant/namespace/name
    subscription: str
    consumer_name: str
    instance: int
    kind: ScalableConsumerType
    start_ms: int = EARLIEST  # for a subscription that is not there yet
    dead_letter: DeadLetterPolicy | None = None


class ConsumerSession:
    """Keeps a `ConsumerCore` subscribed from `start` until `close`, on one event loop.

    It calls `on_change` after every message of the controller. It sets `failure`, and calls
    `on_change`, if the controller refuses the consumer for good.
    """

    def __init__(
        self,
        core: ConsumerCore,
        identity: Identity,
        nodes: Nodes,
        watch: LayoutWatch,
        clock: Callable[[], float],
        on_change: Callable[[], None],
    ) -> None:
        self.failure: ClientError | None = None
        self._core = core
        self._identity = identity
        self._nodes = nodes
        self._watch = watch
        self._clock = clock
        self._on_change = on_change
        self._consumer_id = next(_ids)
        self._logger = _logger.bind(
            topic=identity.topic,
            subscription=identity.subscription,
            consumer=identity.consumer_name,
        )
        self._poke = asyncio.Event()
        self._ready = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._leaving = False
        self._keeps_share = False  # set by `close`
        self._left = False  # and a controller has heard it
        self._fenced = ""  # why it is to leave: another process has its name
        self._connection: NodeConnection | None = None
        self._tried = ""  # the controller that was named, tried last, and in vain
        self._trouble: Exception | None = None

    async def start(self, timeout_s: float) -> None:
        """Returns once subscribed.

        Raises ConsumerBusyError, SubscriptionError, TopicNotFoundError, AuthenticationError,
        RefusedByNodeError or InvalidInputError for a refusal, NodesUnreachableError if nobody
        answers within `timeout_s` seconds.
        """
        self._task = asyncio.create_task(
            self._run(), name=f"session {self._identity.consumer_name}"
        )
        self._task.add_done_callback(self._ended)
        try:
            async with asyncio.timeout(timeout_s):
                await self._ready.wait()
        except TimeoutError:
            why = f": {self._trouble}" if self._trouble is not None else ""
            raise NodesUnreachableError(
                f"no controller of {self._identity.topic} took the consumer in {timeout_s:g} s{why}"
            ) from None
        if self.failure is not None:
            raise self.failure

    def poke(self) -> None:
        """Tells the session that there may be something to report."""
        self._poke.set()

    def stop(self) -> None:
        """Ends the talk without a goodbye, so that the controller waits for the session
        to lapse.
        """
        if self._task is not None:
            self._task.cancel()
        if self._connection is not None:
            self._drop(self._connection)

    async def close(self, timeout_s: float, *, keeps_share: bool = False) -> None:
        """Leaves for good, within `timeout_s` seconds even if the controller does not agree.

        With `keeps_share` a process of the same name will come back for the share.
        """
        task = self._task
        if task is None or self._leaving:
            return
        self._leaving, self._keeps_share = True, keeps_share or self._keeps_share
        self._poke.set()
        was_known = self._ready.is_set()
        if was_known:
            await asyncio.wait([task], timeout=timeout_s)
        self._task = None
        if task.done():  # it has left, was stopped, or was refused
            return
        task.cancel()
        await asyncio.wait([task])
        connection, self._connection = self._connection, None
        if connection is not None:
            if not was_known:  # but a controller may have heard of it that has not answered
                with contextlib.suppress(WireError):
                    await self._say_goodbye(connection, timeout_s)
            connection.close("the consumer was closed")
        if was_known and not self._left:
            why = str(self._trouble or f"no controller answered in {timeout_s:g} s")
            self._logger.warning("consumer.leave_unheard", why=why)

    async def _say_goodbye(self, connection: NodeConnection, timeout_s: float) -> None:
        leave = CommandScalableTopicUnsubscribe(
            consumer_id=self._consumer_id, keep_share=self._keeps_share
        )
        await connection.request(leave, timeout_s)
        self._left = True
        if self._fenced:
            self._fail(ConsumerFencedError(self._fenced))

    def _ended(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is None:
            return
        self._logger.error("consumer.session_failed", why=repr(error))
        self.failure = ClientError(f"the consumer's session ended by a fault: {error!r}")
        if self._connection is not None:
            self._drop(self._connection)
        self._ready.set()
        self._on_change()

    @property
    def _is_over(self) -> bool:
        return self._left or self.failure is not None

    async def _run(self) -> None:
        attempt = 0
        while not self._is_over:
            try:
                if await self._session():
                    attempt = 0
            except (WireError, NodesUnreachableError, AuthenticationError) as error:
                self._troubled(error)
            finally:
                self._core.on_disconnected()
            attempt += 1
            if self._core.needs_subscribe and not self._is_over:
                await rest(attempt - 1, _RETRY_S_MIN, _RETRY_S_MAX)

    def _troubled(self, error: Exception) -> None:
        self._trouble = error
        failure = self._failure_of(error)
        if failure is None:
            self._logger.info("consumer.session_interrupted", why=str(error))
        else:
            self._fail(failure)

    def _fail(self, failure: ClientError) -> None:
        self.failure = failure
        self._logger.warning("consumer.refused", why=str(failure))
        if isinstance(failure, ConsumerFencedError):
            self._core.give_up(Loss.FENCED)  # another process has its buckets by now
        self._ready.set()
        self._on_change()

    def _failure_of(self, error: Exception) -> ClientError | None:
        """Returns the error that ends the consumer, None if another try may do better."""
        if isinstance(error, AuthenticationError):
            # A file or function may be late with a new token: no reason to end a running session.
            return None if error.may_pass and self._ready.is_set() else error
        if not isinstance(error, RefusedError) or error.code in _PASSING:
            return None
        if error.code == ServerError.InvalidTopicName:
            return ClientError(error.reason)
        return _ERRORS.get(error.code, RefusedByNodeError)(error.reason)

    async def _session(self) -> bool:
        """Runs one connection, from its Subscribe to its end. Returns True if it was subscribed."""
        connection = await self._find()
        # Left open by a cancellation, for the one who closes to say goodbye on.
        self._connection = connection
        try:
            if not await self._subscribe(connection):
                return False
            await self._talk(connection)
        except WireError:
            self._drop(connection)
            raise
        self._drop(connection)
        return True

    def _drop(self, connection: NodeConnection) -> None:
        self._connection = None
        over = "the consumer was closed" if self._left else "the session goes on over another one"
        connection.abort(over)

    async def _find(self) -> NodeConnection:
        """Returns a connection to the controller, as far as anybody knows the controller."""
        url = self._watch.controller_url or self._watch.layout.controller_url
        if not url or url == self._tried:
            url = await self._ask_for_controller()
            self._tried = ""
        else:
            self._tried = url
        if not url:
            port = "brokerServicePortTls" if self._nodes.is_tls else "brokerServicePort"
            raise NodesUnreachableError(
                f"the controller of {self._identity.topic} has no {port}: set it on every node, "
                f"or name another port than {self._nodes.url}"
            )
        try:
            address = parse_url(url)[0]
        except InvalidInputError as error:
            raise NodesUnreachableError(f"the controller's address is of no use: {error}") from None
        return await self._nodes.connecting(
            address.host, address.port, on_push=self._pushed, timeout_s=_CONNECT_S_MAX
        )

    async def _ask_for_controller(self) -> str:
        asked = await self._nodes.connect(lambda _: None, _CONNECT_S_MAX)
        try:
            question = CommandLookupTopic(topic=names.full_name(self._identity.topic))
            answer = await asked.request(question, _ANSWER_S_MAX)
            found = answer.lookupTopicResponse
            return self._nodes.one_of(found.brokerServiceUrl, found.brokerServiceUrlTls)
        finally:
            asked.close("the question was answered")

    async def _subscribe(self, connection: NodeConnection) -> bool:
        order = self._core.begin_subscribe(self._clock())
        who = self._identity
        answer = await connection.request(
            CommandScalableTopicSubscribe(
                topic=names.full_name(who.topic),
                subscription=who.subscription,
                consumer_name=who.consumer_name,
                consumer_id=self._consumer_id,
                consumer_type=who.kind,
                holdings=by_segment(order.holdings, order.committed),
                drained=by_segment(order.drained),
                begun_at=order.begun_at or None,
                instance=who.instance,
                start=who.start_ms,
                dead_letter=None if order.begun_at else policy_form(who.dead_letter),
            ),
            _ANSWER_S_MAX,
        )
        given = answer.scalableTopicSubscribeResponse.assignment
        if not self._core.on_subscribed(order.number, assignment_of(given), self._clock()):
            return False
        self._tried = ""
        self._logger.info("consumer.subscribed", controller=connection.address)
        self._ready.set()
        self._on_change()
        return True

    async def _talk(self, connection: NodeConnection) -> None:
        connection.closed.add_done_callback(lambda _: self._poke.set())
        while not self._core.needs_subscribe and connection.is_open:
            if self._leaving or (self._fenced and self._core.holds_nothing):
                if self._core.has_news:
                    await self._report(connection)  # the next consumer goes on there
                await self._say_goodbye(connection, _ANSWER_S_MAX)
                return
            self._poke.clear()
            now = self._clock()
            if self._core.report_due(now):
                await self._report(connection)
                continue
            pause_s = max(0.001, self._core.wake_at() - now)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(None if math.isinf(pause_s) else pause_s):
                    await self._poke.wait()

    async def _report(self, connection: NodeConnection) -> None:
        report = self._core.begin_report(self._clock())
        if report is None:
            return
        assignment = self._core.assignment
        session_s = _ANSWER_S_MAX if assignment is None else assignment.session_timeout_s
        await connection.request(
            CommandScalableConsumerReport(
                consumer_id=self._consumer_id,
                released=by_segment(report.released, report.committed),
                drained=by_segment(report.drained),
                dead_letters_waiting=report.dead_letters_waiting or None,
            ),
            min(_ANSWER_S_MAX, session_s / 3),
        )
        self._core.on_reported(report.number, self._clock())
        self._on_change()

    def _pushed(self, command: BaseCommand) -> None:
        if command.type == BaseCommand.CLOSE_CONSUMER and command.close_consumer.HasField("error"):
            self._fenced, self._keeps_share = command.close_consumer.reason, True
            self._core.close(self._clock(), Loss.FENCED)
            self._poke.set()
            self._on_change()
            return
        if command.type == BaseCommand.CLOSE_CONSUMER:
            self._logger.info("consumer.session_closed", why=command.close_consumer.reason)
            if self._connection is not None:  # its end wakes whoever waits on it
                self._connection.abort("the controller has ended the session")
            return
        if command.type != BaseCommand.SCALABLE_TOPIC_ASSIGNMENT_UPDATE:
            return
        update = command.scalableTopicAssignmentUpdate
        if update.consumer_id == self._consumer_id:
            self._core.on_assignment(assignment_of(update.assignment), self._clock())
            self._poke.set()
            self._on_change()


def warn_if_blocked(logger: EventLog, late_s: float, session_s: float) -> None:
    """Warns of a blocked event loop, because it keeps sessions from being kept."""
    if late_s > session_s / 3:
        logger.warning(
            "consumer.loop_blocked",
            blocked_s=round(late_s, 1),
            session_s=session_s,
            advice="receive_many fewer at a time, or work in a thread (asyncio.to_thread)",
        )
