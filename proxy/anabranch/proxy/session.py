"""`ClientSession`: relays one client of a proxy to nodes, by links that are this client's alone.

Look-ups, lists and watches go to the client's *home*, its link to any one node. A consumer's
session and reports of traffic go to the node that controls the topic; the home looks it up each
time. A client ends with its home, and connects again. A consumer that has lost its node is told to
subscribe again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Final, NamedTuple
from weakref import WeakValueDictionary

from anabranch.access import CredentialsError
from anabranch.broker.logging import get_logger
from anabranch.core.strangers import PortRefusal
from anabranch.proxy.addresses import ProxyAddresses
from anabranch.proxy.counts import ProxyCounts
from anabranch.proxy.link import OWN_IDS, Asked, NodeLink
from anabranch.proxy.lists import ListRelay
from anabranch.proxy.nodes import KnownNodes, address_of
from anabranch.wire import commands
from anabranch.wire.anabranch_pb2 import (
    BaseCommand,
    CommandCloseConsumer,
    CommandConnect,
    CommandLookupTopic,
    ServerError,
)
from anabranch.wire.errors import (
    AuthenticationError,
    ConnectError,
    ConnectionLostError,
    RefusedError,
    RequestTimeoutError,
    TurnedAwayError,
)
from anabranch.wire.memory.limiter import AsyncDualMemoryLimiter
from anabranch.wire.server.server import Peer, Routes

_CONTROLLER_S_MAX: Final = 15.0  # a node waits up to 10 s for a bundle that moves
_SLOW: Final = "the other side is slow"  # why a side is not read
_FULL: Final = "a node owes as many answers as may be"
_FOR_HOME: Final = (
    *(BaseCommand.LOOKUP, BaseCommand.SCALABLE_TOPIC_LINEAGE),
    *(BaseCommand.WATCH_TOPIC_LIST, BaseCommand.WATCH_TOPIC_LIST_CLOSE),
    *(BaseCommand.SCALABLE_TOPIC_LOOKUP, BaseCommand.SCALABLE_TOPIC_CLOSE),
    *(BaseCommand.WATCH_SCALABLE_TOPICS, BaseCommand.WATCH_SCALABLE_TOPICS_CLOSE),
)
_OF_CONSUMERS: Final = (
    *(BaseCommand.SCALABLE_TOPIC_SUBSCRIBE, BaseCommand.SCALABLE_TOPIC_UNSUBSCRIBE),
    BaseCommand.SCALABLE_CONSUMER_REPORT,
)
# A client is told what its node says when it ends the link.
_FAREWELLS: Final = {
    ServerError.AuthorizationError: PortRefusal.REVOKED,
    ServerError.TooManyRequests: PortRefusal.COSTLY,
    ServerError.ServiceNotReady: PortRefusal.IDLE,
}
_NOT_OPENED: Final = (ConnectError, AuthenticationError, CredentialsError)
_log = get_logger()


class SessionParts(NamedTuple):
    """The parts of the proxy that a session needs."""

    nodes: KnownNodes
    addresses: ProxyAddresses
    limiter: AsyncDualMemoryLimiter
    counts: ProxyCounts


class ClientSession:
    """One client. `hello`: its CONNECT for nodes. `asker`: its role, "" where nobody is asked."""

    def __init__(self, peer: Peer, parts: SessionParts, hello: CommandConnect, asker: str) -> None:
        self._peer = peer
        self._hello = hello
        self._asker = asker
        self._nodes = parts.nodes
        self._addresses = parts.addresses
        self._counts = parts.counts
        self._lists = ListRelay(peer, parts.limiter, self._relay, self._list_answers)
        self._links: dict[str, NodeLink] = {}  # by host:port
        self._home: NodeLink | None = None
        self._opening = asyncio.Lock()
        self._waiting = 0  # for the home: who comes later has to come behind them
        self._consumers: dict[int, NodeLink] = {}
        self._turns: WeakValueDictionary[int, asyncio.Lock] = WeakValueDictionary()
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_client_slow = self._is_full = False
        peer.closed.add_done_callback(lambda _: self._end())
        peer.answer_at_once(BaseCommand.LOOKUP, self._look_up)

    def routes(self) -> Routes:
        """By command."""
        return {
            **dict.fromkeys(_FOR_HOME, self._relay),
            BaseCommand.GET_TOPICS_OF_NAMESPACE: self._lists.ask,
            BaseCommand.SCALABLE_TOPIC_SUBSCRIBE: self._subscribe,
            BaseCommand.SCALABLE_TOPIC_UNSUBSCRIBE: self._to_consumers_node,
            BaseCommand.SCALABLE_CONSUMER_REPORT: self._to_consumers_node,
            BaseCommand.SCALABLE_TRAFFIC_REPORT: self._report,
        }

    @property
    def is_idle(self) -> bool:
        """True if no node owes it an answer."""
        return self._lists.is_idle and not any(link.asked for link in self._links.values())

    @property
    def unsent(self) -> int:
        """The bytes of its client that nodes have not taken."""
        return sum(link.unsent for link in self._links.values())

    # --- to nodes ---------------------------------------------------------------------------

    def _look_up(self, command: BaseCommand) -> bool:
        """Relays a look-up at once, without a task; False: its home is not there yet."""
        home = self._home
        if home is None or not home.is_open or self._waiting:
            return False
        if _is_own_id(commands.request_id_of(command)) or not self._may_ask(command):
            return False  # its route refuses it
        self._ask(home, command)
        return True

    async def _relay(self, command: BaseCommand) -> None:
        home = await self._at_home()
        if not self._may_ask(command):
            raise RefusedError(
                ServerError.AuthorizationError,
                "a client of this proxy asks for itself alone: leave out original_principal",
            )
        self._ask(home, command)

    def _may_ask(self, command: BaseCommand) -> bool:
        """False for a look-up that names somebody else; else it names nobody: the link does."""
        if command.type != BaseCommand.LOOKUP:
            return True
        named = command.lookupTopic.original_principal
        if named and self._asker and named != self._asker:
            return False  # and keeps the name, because it may be asked again
        command.lookupTopic.ClearField("original_principal")
        return True

    async def _subscribe(self, command: BaseCommand) -> None:
        said = command.scalableTopicSubscribe
        _number_of(command)  # a consumer is noted only where it can be asked for
        async with self._turn_of(said.consumer_id):
            link = await self._controller_of(said.topic)
            self._forget_consumer(said.consumer_id)
            self._consumers[said.consumer_id] = link
            link.consumers.add(said.consumer_id)
            self._ask(link, command)

    async def _to_consumers_node(self, command: BaseCommand) -> None:
        said: Any = commands.payload_of(command)
        async with self._turn_of(said.consumer_id):
            link = self._consumers.get(said.consumer_id)
            if link is None:
                raise RefusedError(
                    ServerError.ConsumerNotFound,
                    f"consumer {said.consumer_id} of this connection has no session: subscribe "
                    "first",
                )
            self._ask(link, command)

    def _turn_of(self, consumer_id: int) -> asyncio.Lock:
        """Its commands go to nodes in their order, also while a controller is looked up."""
        return self._turns.setdefault(consumer_id, asyncio.Lock())

    async def _report(self, command: BaseCommand) -> None:
        self._ask(await self._controller_of(command.scalableTrafficReport.topic), command)

    def _ask(self, link: NodeLink, command: BaseCommand) -> None:
        """Raises RefusedError for a request id of the proxy's own."""
        number = _number_of(command)
        self._counts.commands += 1
        if number != commands.NO_REQUEST:
            payload: Any = commands.payload_of(command)
            is_consumers = command.type in _OF_CONSUMERS
            consumer = payload.consumer_id if is_consumers else None
            link.asked[number] = Asked(command.type, consumer)
        link.send_command(command)
        if link.unsent:
            self._peer.looked(link.unsent)  # the gate looks at the client's memory
        self._look_how_full()
        if not link.is_drained:
            self._peer.hold(link)
            self._spawn(self._until_node_reads(link))

    async def _until_node_reads(self, link: NodeLink) -> None:
        await link.drained()
        self._peer.go_on(link)

    def _look_how_full(self) -> None:
        """The client waits while a node owes it as many answers as may be."""
        owed = max((len(link.asked) for link in self._links.values()), default=0)
        is_full = owed >= self._peer.limits.requests_max
        if is_full != self._is_full:
            self._is_full = is_full
            (self._peer.hold if is_full else self._peer.go_on)(_FULL)

    # --- links ------------------------------------------------------------------------------

    async def _at_home(self) -> NodeLink:
        """The home, opened if need be. Raises RefusedError when no node takes the link."""
        if self._home is not None and self._home.is_open and not self._waiting:
            return self._home
        self._waiting += 1
        try:
            async with self._opening:
                if self._home is None or not self._home.is_open:
                    self._home = await self._opened_anywhere()
                return self._home
        finally:
            self._waiting -= 1

    async def _opened_anywhere(self) -> NodeLink:
        failures: list[str] = []
        code = ServerError.ServiceNotReady
        for address in self._nodes.binary.order():
            try:
                return await self._opened(address)
            except _NOT_OPENED as error:
                code = self._code_of(error)
                if code == ServerError.AuthenticationError:
                    raise RefusedError(code, str(error)) from error  # another node says the same
                failures.append(str(error))
        raise RefusedError(code, str(self._nodes.nobody(failures)))

    async def _controller_of(self, topic: str) -> NodeLink:
        """A link to the node that controls the topic. Raises RefusedError."""
        home = await self._at_home()
        question = CommandLookupTopic(topic=topic)
        try:
            answer = await home.request(question, _CONTROLLER_S_MAX)
        except (ConnectionLostError, RequestTimeoutError) as error:
            raise RefusedError(ServerError.ServiceNotReady, str(error)) from error
        said = answer.lookupTopicResponse
        is_plain = self._nodes.tls is None
        found = address_of(said.brokerServiceUrl if is_plain else said.brokerServiceUrlTls)
        if self._nodes.is_own(found):
            raise RefusedError(
                ServerError.ServiceNotReady,
                f"{home.node} names {found or 'nobody'} as the controller: try again",
            )
        async with self._opening:
            try:
                return await self._opened(found)
            except _NOT_OPENED as error:
                raise RefusedError(self._code_of(error), str(error)) from error

    async def _opened(self, address: str) -> NodeLink:
        """Raises ConnectError, AuthenticationError, CredentialsError, RefusedError."""
        known = self._links.get(address)
        if known is not None and known.is_open:
            return known
        hello = CommandConnect()
        hello.CopyFrom(self._hello)
        link = await self._nodes.joined(lambda: NodeLink(self, address), address, hello)
        if not self._peer.is_open:
            link.abort("its client has gone")
            raise ConnectError("the client has gone")
        # A link counts as a watch: while it is open its node judges whether the client is idle.
        try:
            self._peer.open_watch()
        except RefusedError as error:
            link.abort(error.reason)
            raise
        self._links[address] = link
        if self._is_client_slow:
            link.hold(_SLOW)
        return link

    def _code_of(self, error: Exception) -> ServerError:
        """The code for a client: that of a node that is there and does not take the link.

        Who comes is wrong only where it is the client that nodes ask; else the proxy is.
        """
        if isinstance(error, AuthenticationError) and not self._asker:
            return ServerError.AuthenticationError
        return error.code if isinstance(error, TurnedAwayError) else ServerError.ServiceNotReady

    # --- from nodes -------------------------------------------------------------------------

    def answered(self, link: NodeLink, command: BaseCommand) -> None:
        """A command of the node for the client, no list."""
        kind = command.type
        if kind == BaseCommand.LOOKUP_RESPONSE:
            self._addresses.in_lookup(command.lookupTopicResponse)
        elif kind == BaseCommand.SCALABLE_TOPIC_UPDATE:
            if not command.scalableTopicUpdate.HasField("error"):
                self._addresses.in_layout(command.scalableTopicUpdate.dag)
        elif kind == BaseCommand.CLOSE_CONSUMER and not command.close_consumer.HasField("error"):
            self._forget_consumer(command.close_consumer.consumer_id)
        asked = link.asked.pop(commands.request_id_of(command), None)
        if asked is not None:
            self._settled(asked, command)
        self._peer.send_command(command)
        self._look_how_full()
        if not self._peer.is_drained and not self._is_client_slow:
            self._is_client_slow = True
            self._spawn(self._until_client_reads())

    def _settled(self, asked: Asked, answer: BaseCommand) -> None:
        if asked.type_number == BaseCommand.GET_TOPICS_OF_NAMESPACE:  # else it were a list
            self._lists.refused()
        elif asked.consumer is not None:
            is_left = asked.type_number == BaseCommand.SCALABLE_TOPIC_UNSUBSCRIBE
            is_refused = answer.scalableTopicSubscribeResponse.HasField("error")
            if is_refused or (is_left and answer.type == BaseCommand.SUCCESS):
                self._forget_consumer(asked.consumer)

    async def _until_client_reads(self) -> None:
        """Nothing is read from nodes for a client that does not read."""
        for link in self._links.values():
            link.hold(_SLOW)
        await self._peer.drained()
        self._is_client_slow = False
        for link in list(self._links.values()):
            link.go_on(_SLOW)

    def list_begins(self, link: NodeLink, type_number: int, frame_bytes: int) -> None:
        """A list begins: it is relayed when there is memory for it."""
        self._spawn(self._lists.relay(link, type_number, frame_bytes))

    def _list_answers(self, link: NodeLink, number: int) -> None:
        """A list is the answer to that request."""
        link.asked.pop(number, None)
        self._look_how_full()

    # --- ends -------------------------------------------------------------------------------

    def link_ended(self, link: NodeLink, reason: str) -> None:
        """Ends the client with its home; else refuses what the link carried."""
        if self._links.get(link.node) is not link:
            return
        del self._links[link.node]
        self._peer.close_watch()
        if not self._peer.is_open:
            return
        why = f"node {link.node} has gone: {reason}"
        if link.farewell is None:
            self._counts.lost_links += 1
            self._nodes.binary.failed(link.node, reason)
            _log.info("proxy.link_lost", node=link.node, client=self._peer.address, why=reason)
        if link is self._home:
            self._home = None
            if link.asked or not self._consumers or not _was_idle(link):
                self._end_with(link, why)
                return
        for number, asked in link.asked.items():
            self._refuse(number, asked, why)
        for number in list(link.consumers):
            self._forget_consumer(number)
            self._peer.send(
                CommandCloseConsumer(
                    consumer_id=number,
                    request_id=commands.NO_REQUEST,
                    reason=f"{why}: subscribe again",
                )
            )
        self._look_how_full()

    def _end_with(self, link: NodeLink, why: str) -> None:
        refusal = _FAREWELLS.get(link.farewell.error) if link.farewell is not None else None
        if link.farewell is None or refusal is None:
            self._peer.close(why)
        else:
            self._peer.turn_away(refusal, link.farewell.message, link.farewell.error)

    def _refuse(self, number: int, asked: Asked, why: str) -> None:
        command = commands.empty(asked.type_number)
        payload: Any = commands.payload_of(command)
        payload.request_id = number
        if asked.consumer is not None:
            payload.consumer_id = asked.consumer
        self._peer.refuse(command, ServerError.ServiceNotReady, why)

    def _forget_consumer(self, consumer_id: int) -> None:
        link = self._consumers.pop(consumer_id, None)
        if link is not None:
            link.consumers.discard(consumer_id)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            _log.error("proxy.fault", client=self._peer.address, exc_info=error)
            self._peer.close("the proxy met a fault; its log says where")

    def _end(self) -> None:
        for task in self._tasks:
            task.cancel()
        links, self._links = list(self._links.values()), {}
        for link in links:
            link.abort("its client has gone")


def _is_own_id(number: int) -> bool:
    return OWN_IDS <= number < commands.NO_REQUEST


def _number_of(command: BaseCommand) -> int:
    """The id of a client's request. Raises RefusedError for one of the proxy's own."""
    number = commands.request_id_of(command)
    if _is_own_id(number):
        raise RefusedError(
            ServerError.NotAllowedError,
            f"request ids from {OWN_IDS} on are the proxy's own: count from 1",
        )
    return number


def _was_idle(link: NodeLink) -> bool:
    """True if the node has ended the link because nothing was asked, and nothing watched."""
    return link.farewell is not None and link.farewell.error == ServerError.ServiceNotReady
