"""`ClientSession`: what one client of a proxy has under way, and the links that carry it.

Look-ups go over a link that many clients share, while that is not busy. Lists and watches go to the
client's *home*, its link to any node; what belongs to a topic's controller goes to that, which is
looked up each time. When the home is lost, look-ups, requests for lists and watches go on at
another node; a consumer whose node is lost is told to subscribe again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Final

from anabranch.broker.logging import get_logger
from anabranch.broker.proxy.clients.peer import ProxiedPeer
from anabranch.broker.proxy.clients.watches import KeptWatches
from anabranch.broker.proxy.lists.relay import ListRelay
from anabranch.broker.proxy.nodes.link import Asked, NodeLink
from anabranch.broker.proxy.nodes.links import ClientLinks
from anabranch.broker.proxy.parts import SharedParts
from anabranch.core.strangers import PortRefusal
from anabranch.core.topic_lists.errors import PermitAcquireError
from anabranch.wire import commands
from anabranch.wire.anabranch_pb2 import BaseCommand, CommandCloseConsumer, ServerError
from anabranch.wire.errors import RefusedError
from anabranch.wire.server.server import Routes

_ATTEMPTS_MAX: Final = 5
_LIST_S_MAX: Final = 60.0  # from the question to the end of the answer
# Asked again at another node when theirs is gone.
_REPEATABLE: Final = frozenset(
    {
        *(BaseCommand.LOOKUP, BaseCommand.SCALABLE_TOPIC_LINEAGE),
        *(BaseCommand.GET_TOPICS_OF_NAMESPACE, BaseCommand.WATCH_TOPIC_LIST),
    }
)
_FOR_LISTS: Final = (BaseCommand.GET_TOPICS_OF_NAMESPACE, BaseCommand.WATCH_TOPIC_LIST)
_log = get_logger()


class ClientSession:
    """One client of the proxy."""

    def __init__(self, peer: ProxiedPeer, shared: SharedParts) -> None:
        self._peer = peer
        self._nodes = shared.nodes
        self._addresses = shared.addresses
        self._counts = shared.counts
        self._watches = KeptWatches(shared.addresses, peer)
        self._lists = ListRelay(peer, self, shared.limiter, shared.lists)
        self._list: tuple[int, asyncio.Future[bool]] | None = None  # asked for, by request id
        self._links = ClientLinks(self, shared.nodes, peer.hello)
        self._consumers: dict[int, NodeLink] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._lookups = 0  # passed on with those of others
        self._is_client_slow = False
        peer.closed.add_done_callback(lambda _: self._end())
        peer.answer_at_once(BaseCommand.LOOKUP, self._look_up)

    def routes(self) -> Routes:
        """By command."""
        return {
            BaseCommand.LOOKUP: self._ask_home,
            BaseCommand.GET_TOPICS_OF_NAMESPACE: self._ask_list,
            BaseCommand.WATCH_TOPIC_LIST: self._ask_list,
            BaseCommand.WATCH_TOPIC_LIST_CLOSE: self._ask_home,
            BaseCommand.SCALABLE_TOPIC_LOOKUP: self._watch,
            BaseCommand.SCALABLE_TOPIC_CLOSE: self._unwatch,
            BaseCommand.SCALABLE_TOPIC_LINEAGE: self._ask_home,
            BaseCommand.WATCH_SCALABLE_TOPICS: self._watch,
            BaseCommand.WATCH_SCALABLE_TOPICS_CLOSE: self._unwatch,
            BaseCommand.SCALABLE_TOPIC_SUBSCRIBE: self._subscribe,
            BaseCommand.SCALABLE_TOPIC_UNSUBSCRIBE: self._ask_consumers_node,
            BaseCommand.SCALABLE_CONSUMER_REPORT: self._ask_consumers_node,
            BaseCommand.SCALABLE_TRAFFIC_REPORT: self._report,
        }

    @property
    def is_idle(self) -> bool:
        """Whether it waits for no answer."""
        return not self._lookups and self._links.is_idle

    def dismiss_consumers(self, why: str) -> None:
        """Tells every consumer to subscribe again."""
        for number in list(self._consumers):
            self._forget_consumer(number)
            self._dismiss(number, why)

    def _look_up(self, command: BaseCommand) -> bool:
        """Passes a look-up on with those of others; False: it must wait first."""
        if self._lookups >= self._peer.limits.requests_max:
            return False
        try:
            self._peer.say_for_whom(command)
        except RefusedError:
            return False  # its route says why
        if not self._nodes.look_up(self, command):
            return False
        self._counts.lookups += 1
        self._lookups += 1
        return True

    def lookup_answered(self, number: int, answer: BaseCommand) -> None:
        """What was passed on so is answered."""
        self._lookups -= 1
        said = answer.lookupTopicResponse
        said.request_id = number
        self._addresses.in_lookup(said)
        self._pass_on(answer)

    def lookup_lost(self, _number: int, command: BaseCommand) -> None:
        """What was passed on so is asked again, over a link of the client's own."""
        self._lookups -= 1
        if self._peer.is_open:
            self._spawn(self._again(Asked(command, 2)))

    # --- commands ---------------------------------------------------------------------------

    async def _ask_home(self, command: BaseCommand) -> None:
        self._counts.requests += 1
        self._peer.say_for_whom(command)
        await self._ask_any(Asked(command))
        if command.type == BaseCommand.WATCH_TOPIC_LIST_CLOSE:
            self._watches.close_list(command.watchTopicListClose.watcher_id)

    async def _ask_any(self, asked: Asked) -> None:
        """Raises RefusedError."""
        home = await self._links.at_home()
        self._peer.said_by_link(asked.command)
        self._ask(home, commands.request_id_of(asked.command), asked)

    async def _ask_list(self, command: BaseCommand) -> None:
        try:
            await self._lists.ask(command)
        except PermitAcquireError as error:
            raise RefusedError(ServerError.TooManyRequests, str(error)) from error

    async def ask_for_list(self, command: BaseCommand) -> None:
        """Passes the request on; returns when it was answered, or refused."""
        self._counts.requests += 1
        number = commands.request_id_of(command)
        answered: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        watcher = command.watchTopicList.watcher_id
        is_watch = command.type == BaseCommand.WATCH_TOPIC_LIST
        is_new = is_watch and self._watches.open_list(watcher)
        is_told = False
        self._list = (number, answered)
        try:
            async with asyncio.timeout(_LIST_S_MAX):
                await self._ask_any(Asked(command))
                is_told = await answered
        except TimeoutError:
            self._links.forget(number)
            raise RefusedError(
                ServerError.ServiceNotReady, f"no node sent the list within {_LIST_S_MAX:g} s"
            ) from None
        finally:
            self._list = None
            if is_new and not is_told:
                self._watches.close_list(watcher)

    async def _watch(self, command: BaseCommand) -> None:
        self._counts.requests += 1
        kept = self._watches.open(command)
        try:
            home = await self._links.at_home()
        except RefusedError:
            if self._watches.is_kept(kept):
                self._watches.close(command)
            raise
        if self._watches.is_kept(kept) and not kept.is_told:
            kept.is_told = True
            self._open_watch(home, command)

    def _open_watch(self, home: NodeLink, command: BaseCommand) -> None:
        is_list = command.type == BaseCommand.WATCH_SCALABLE_TOPICS
        self._tell(home, self._lists.watches.opened(command) if is_list else command)

    async def _unwatch(self, command: BaseCommand) -> None:
        self._watches.close(command)
        if command.type == BaseCommand.WATCH_SCALABLE_TOPICS_CLOSE:
            self._lists.watches.close(command.watchScalableTopicsClose.watch_id)
        if self._links.home is not None:
            self._tell(self._links.home, command)

    async def _subscribe(self, command: BaseCommand, attempts: int = 1) -> None:
        self._counts.requests += 1
        said = command.scalableTopicSubscribe
        self._peer.open_watch()
        try:
            node = await self._nodes.controller_of(said.topic, self._peer.asker)
            link = await self._links.to(node)
        except BaseException:
            self._peer.close_watch()
            raise
        before = self._consumers.get(said.consumer_id)
        self._forget_consumer(said.consumer_id)
        if before is not None and before is not link:
            self._links.drop_if_unused(before)
        self._consumers[said.consumer_id] = link
        link.consumers.add(said.consumer_id)
        self._ask(link, said.request_id, Asked(command, attempts))

    async def _ask_consumers_node(self, command: BaseCommand) -> None:
        self._counts.requests += 1
        said: Any = commands.payload_of(command)
        link = self._consumers.get(said.consumer_id)
        if link is None:
            raise RefusedError(
                ServerError.ConsumerNotFound,
                f"consumer {said.consumer_id} of this connection has no session: subscribe first",
            )
        self._ask(link, said.request_id, Asked(command))

    async def _report(self, command: BaseCommand, attempts: int = 1) -> None:
        self._counts.requests += 1
        said = command.scalableTrafficReport
        link = await self._links.to(await self._nodes.controller_of(said.topic, self._peer.asker))
        self._ask(link, said.request_id, Asked(command, attempts))

    # --- to nodes ---------------------------------------------------------------------------

    def _ask(self, link: NodeLink, request_id: int, asked: Asked) -> None:
        link.ask(request_id, asked)
        self._look_how_full()
        if not link.is_drained:
            self._node_is_slow(link)

    def _tell(self, link: NodeLink, command: BaseCommand) -> None:
        link.tell(command)
        if not link.is_drained:
            self._node_is_slow(link)

    def _node_is_slow(self, link: NodeLink) -> None:
        """The client waits while a node does not take what it has sent."""

        async def wait() -> None:
            await link.drained()
            self._peer.go_on(link)

        self._peer.hold(link)
        self._spawn(wait())

    def _look_how_full(self) -> None:
        """The client waits while nodes owe it as many answers as may be."""
        is_full = self._links.owed_most >= self._peer.limits.requests_max
        (self._peer.hold if is_full else self._peer.go_on)(self)

    # --- from nodes -------------------------------------------------------------------------

    def answered(self, link: NodeLink, command: BaseCommand) -> None:
        """A command of the node for the client, no list."""
        kind = command.type
        if kind == BaseCommand.LOOKUP_RESPONSE:
            self._addresses.in_lookup(command.lookupTopicResponse)
        elif kind == BaseCommand.SCALABLE_TOPIC_UPDATE:
            if not self._watches.is_news(command.scalableTopicUpdate):
                return
        elif kind == BaseCommand.CLOSE_CONSUMER and not command.close_consumer.HasField("error"):
            self._forget_consumer(command.close_consumer.consumer_id)
        number = commands.request_id_of(command)
        asked = link.asked.pop(number, None)
        if asked is not None:
            self._settled(link, asked, command, number)
        self._pass_on(command)
        self._look_how_full()

    def _settled(self, link: NodeLink, asked: Asked, answer: BaseCommand, number: int) -> None:
        kind = asked.command.type
        if kind == BaseCommand.SCALABLE_TOPIC_SUBSCRIBE:
            if answer.scalableTopicSubscribeResponse.HasField("error"):
                self._forget_consumer(asked.command.scalableTopicSubscribe.consumer_id)
        elif kind == BaseCommand.SCALABLE_TOPIC_UNSUBSCRIBE:
            if answer.type == BaseCommand.SUCCESS:
                self._forget_consumer(asked.command.scalableTopicUnsubscribe.consumer_id)
        elif kind in _FOR_LISTS:  # refused, for else the answer is a list
            self._list_is_over(number, is_told=False)
        elif kind == BaseCommand.WATCH_TOPIC_LIST_CLOSE:
            self._list_is_closed(link, asked.command.watchTopicListClose.watcher_id)

    def _list_is_closed(self, link: NodeLink, watcher_id: int) -> None:
        """A node answers nothing to a watch of a topic list that is closed before its answer."""
        number = self._list[0] if self._list is not None else commands.NO_REQUEST
        asked = link.asked.get(number)
        if asked is not None and asked.command.watchTopicList.watcher_id == watcher_id:
            del link.asked[number]
            self._list_is_over(number, is_told=False)

    def _list_is_over(self, number: int, *, is_told: bool) -> None:
        if self._list is not None and self._list[0] == number and not self._list[1].done():
            self._list[1].set_result(is_told)

    def list_begins(self, link: NodeLink, type_number: int, frame_bytes: int) -> None:
        """A list begins: it is relayed when there is memory for it."""
        self._spawn(self._lists.relay(link, type_number, frame_bytes))

    def list_came(self, link: NodeLink, command: BaseCommand) -> None:
        """The node has answered: if it is lost now, nothing is asked again."""
        link.asked.pop(commands.request_id_of(command), None)
        self._look_how_full()

    def list_over(self, command: BaseCommand, *, is_told: bool) -> None:
        """The client has the list, or the request is to be repeated."""
        self._list_is_over(commands.request_id_of(command), is_told=is_told)

    def list_refused(self, command: BaseCommand, why: str) -> None:
        """The client does not get the list."""
        self._refuse(command, ServerError.TooManyRequests, why)

    def change_passed(self, type_number: int, data: bytes | bytearray) -> None:
        """The client has what changed in a list, or the whole of one that it watches."""
        if type_number == BaseCommand.WATCH_SCALABLE_TOPICS_UPDATE:
            self._watches.list_passed(data)

    def change_refused(self, why: str) -> None:
        """The client does not get that, and has to begin anew."""
        self._peer.close(f"a change of a list of topics could not be passed on: {why}")

    def _pass_on(self, command: BaseCommand) -> None:
        self._peer.send_command(command)
        if not self._peer.is_drained and not self._is_client_slow:
            self._is_client_slow = True
            self._spawn(self._until_client_reads())

    async def _until_client_reads(self) -> None:
        """Nothing is read from nodes for a client that does not read."""
        self._links.pause()
        await self._peer.drained()
        self._is_client_slow = False
        self._links.resume()

    # --- ends -------------------------------------------------------------------------------

    def link_ended(self, link: NodeLink, reason: str) -> None:
        """What it carried goes on elsewhere, or is refused."""
        if not self._links.lost(link):
            return
        was_home = self._links.home is link
        if was_home:
            self._links.home = None
        if not self._peer.is_open:
            return
        # A node that gives up a watch is there, and its client is told as it would be without us.
        if link.revoked:
            self._peer.turn_away(PortRefusal.REVOKED, link.revoked)
            return
        if link.too_much and was_home and self._watches.has_lists:
            self._peer.turn_away(PortRefusal.COSTLY, link.too_much)
            return
        why = f"node {link.node} has gone: {reason}"
        if not link.was_idle:
            self._counts.lost_links += 1
            self._nodes.binary_failed(link.node, reason)
            _log.info("proxy.link_lost", node=link.node, client=self._peer.address, why=reason)
        asked, link.asked = link.asked, {}
        for each in asked.values():
            self._lost(link, each, why)
        for number in list(link.consumers):
            self._forget_consumer(number)
            self._dismiss(number, why)
        self._look_how_full()
        if was_home:
            self._move_watches(was_idle=link.was_idle)

    def _lost(self, link: NodeLink, asked: Asked, why: str) -> None:
        is_repeatable = link.was_idle or asked.command.type in _REPEATABLE
        if asked.command.type == BaseCommand.SCALABLE_TOPIC_SUBSCRIBE:
            self._forget_consumer(asked.command.scalableTopicSubscribe.consumer_id)
        if is_repeatable and asked.attempts < _ATTEMPTS_MAX:
            asked.attempts += 1
            self._spawn(self._again(asked))
            return
        self._refuse(asked.command, ServerError.ServiceNotReady, why)

    async def _again(self, asked: Asked) -> None:
        try:
            if asked.command.type == BaseCommand.SCALABLE_TOPIC_SUBSCRIBE:
                await self._subscribe(asked.command, asked.attempts)
            elif asked.command.type == BaseCommand.SCALABLE_TRAFFIC_REPORT:
                await self._report(asked.command, asked.attempts)
            else:
                await self._ask_any(asked)
        except RefusedError as error:
            self._refuse(asked.command, error.code, error.reason)

    def _refuse(self, command: BaseCommand, code: ServerError, why: str) -> None:
        self._peer.refuse(command, code, why)
        self._list_is_over(commands.request_id_of(command), is_told=False)

    def _move_watches(self, *, was_idle: bool) -> None:
        if self._watches.has_lists and not was_idle:  # an idle link had none, but one just asked
            # Only the client knows its lists: it watches again, with their hashes.
            self._peer.close("the node of a watch of a topic list has gone: connect again")
        elif self._watches:
            self._spawn(self._watch_elsewhere())

    async def _watch_elsewhere(self) -> None:
        try:
            home = await self._links.at_home()
        except RefusedError as error:
            for command in self._watches.give_up():
                self._peer.refuse(command, error.code, error.reason)
            return
        for command in self._watches.moved():
            self._counts.moved_watches += 1
            self._open_watch(home, command)

    def _dismiss(self, consumer_id: int, why: str) -> None:
        self._peer.send(
            CommandCloseConsumer(
                consumer_id=consumer_id,
                request_id=commands.NO_REQUEST,
                reason=f"{why}: subscribe again",
            )
        )

    def _forget_consumer(self, consumer_id: int) -> None:
        link = self._consumers.pop(consumer_id, None)
        if link is not None:
            link.consumers.discard(consumer_id)
            self._peer.close_watch()

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
        self._lists.watches.end()
        self._links.end()
