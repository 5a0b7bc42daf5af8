"""`KnownNodes`: the nodes behind a proxy, how to reach each, and who controls a topic.

The settings name some; of any that answers the others are learnt, again and again. Whether one is
well is not asked but seen: by what becomes of connections to it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final
from urllib.parse import urlsplit

import msgspec

from anabranch.broker.errors import OperationError
from anabranch.broker.logging import get_logger
from anabranch.broker.proxy.http_client import NodeHttp, NodeRequest
from anabranch.broker.proxy.lookup_link import Asker, LookupLink
from anabranch.broker.proxy.node_table import NodeTable
from anabranch.broker.settings.proxy import ProxySettings
from anabranch.wire import clock
from anabranch.wire.anabranch_pb2 import (
    BaseCommand,
    CommandConnect,
    CommandLookupTopic,
    FeatureFlags,
    ServerError,
)
from anabranch.wire.client import join
from anabranch.wire.connection import PROTOCOL_VERSION
from anabranch.wire.errors import ConnectError, ConnectionLostError, RefusedError, WireError

_BROKERS: Final = b"/admin/v2/brokers"
_STATUS: Final = b"/admin/v2/brokers/status"
_OK: Final = 200
_ANSWER_S_MAX: Final = 15.0  # a node waits up to 10 s for a bundle that moves
_HELLO: Final = CommandConnect(
    client_version="anabranch-proxy",
    protocol_version=PROTOCOL_VERSION,
    feature_flags=FeatureFlags(supports_scalable_topics=True, reads_kafka=True),
)

_log = get_logger()


class _Status(msgspec.Struct, rename="camel"):
    """Of a node's own words, what is needed."""

    broker_id: str
    service_url: str


class KnownNodes:
    """On one event loop; `run` looks again and again which nodes there are."""

    def __init__(self, settings: ProxySettings, now: Callable[[], float] = clock.now) -> None:
        self.connect_s_max: Final = settings.broker_proxy_connect_timeout_ms / 1000
        self.http: Final = NodeHttp(self.connect_s_max, settings.http_proxy_timeout / 1000)
        self._web = NodeTable(settings.web_nodes)
        self._binary = NodeTable(settings.binary_nodes)
        self._refresh_s = settings.broker_list_refresh_seconds
        # Never asked, though a load balancer may be called so: the question would come back here.
        self._own = {_address_of(settings.web_url), _address_of(settings.service_url)}
        self._now = now
        self._asking: dict[str, LookupLink] = {}
        self._shared: LookupLink | None = None  # of these, the one for clients' look-ups
        self._sharing: asyncio.Task[None] | None = None
        self._opening = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Looks which nodes there are, from now on."""
        self._task = asyncio.create_task(self._run(), name="nodes")

    async def close(self) -> None:
        """Ends what was begun."""
        tasks = [each for each in (self._task, self._sharing) if each is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for connection in self._asking.values():
            connection.close("the proxy is stopping")
        self.http.close()

    # --- who is well ----------------------------------------------------------------------

    def web_order(self) -> list[str]:
        """Whom to ask by HTTP, best first."""
        return self._web.order(self._now())

    def web_answered(self, address: str) -> None:
        """It answers by HTTP."""
        if self._web.answered(address):
            _log.info("proxy.node_back", node=address)

    def web_failed(self, address: str, error: Exception) -> None:
        """It does not."""
        if self._web.failed(address, self._now()):
            _log.warning("proxy.node_lost", node=address, why=str(error))

    def binary_order(self) -> list[str]:
        """Whom to ask by the binary protocol, best first."""
        return self._binary.order(self._now())

    def binary_answered(self, address: str) -> None:
        """It takes connections of the binary protocol."""
        if self._binary.answered(address):
            _log.info("proxy.node_back", node=address)

    def binary_failed(self, address: str, why: str) -> None:
        """It does not, or has gone."""
        if self._binary.failed(address, self._now()):
            _log.warning("proxy.node_lost", node=address, why=why)

    @property
    def known(self) -> int:
        """Of the ports of either kind, how many are known."""
        return max(len(self._web.addresses), len(self._binary.addresses))

    @property
    def answering(self) -> int:
        """How many of them answered when they were asked last, of the kind that is worse off."""
        return min(self._web.answering(), self._binary.answering())

    # --- look-ups of clients ----------------------------------------------------------------

    def look_up(self, asker: Asker, command: BaseCommand) -> bool:
        """Passes on a whole LOOKUP at once, with those of others; False: not now."""
        if self._shared is not None and self._shared.take(asker, command):
            return True
        if self._sharing is None and (self._shared is None or not self._shared.is_open):
            self._sharing = asyncio.create_task(self._share(), name="look-ups")
        return False

    async def _share(self) -> None:
        try:
            for address in self.binary_order():
                with contextlib.suppress(ConnectError):
                    self._shared = await self._asking_of(address)
                    return
        finally:
            self._sharing = None

    # --- who controls a topic ---------------------------------------------------------------

    async def controller_of(self, topic: str) -> str:
        """host:port of the binary port of the node that controls the topic.

        Raises RefusedError: the node's own, or ServiceNotReady when none answers.
        """
        failures: list[str] = []
        for address in self.binary_order():
            try:
                answer = await self._found_by(address, topic)
            except RefusedError:
                raise
            except WireError as error:
                self.binary_failed(address, str(error))
                failures.append(str(error))
                continue
            found = _address_of(answer.lookupTopicResponse.brokerServiceUrl)
            if found and found not in self._own:
                return found
            failures.append(f"{address} names {found or 'nobody'} as the controller")
        raise RefusedError(ServerError.ServiceNotReady, self.nobody(failures))

    async def _found_by(self, address: str, topic: str) -> BaseCommand:
        """Raises WireError."""
        connection = await self._asking_of(address)
        try:
            return await connection.request(CommandLookupTopic(topic=topic), _ANSWER_S_MAX)
        except ConnectionLostError:
            if not connection.was_ended:
                raise
        connection = await self._asking_of(address)  # the question met the end of an idle one
        return await connection.request(CommandLookupTopic(topic=topic), _ANSWER_S_MAX)

    def nobody(self, failures: list[str]) -> str:
        """What to say when no node could be asked."""
        said = "; ".join(failures) or "none is known; name one in brokerServiceURL"
        return f"no node answers this proxy: {said}"

    async def _asking_of(self, address: str) -> LookupLink:
        """Raises ConnectError."""
        async with self._opening:
            known = self._asking.get(address)
            if known is not None and known.is_open:
                return known
            where = urlsplit(f"//{address}")
            host, port = where.hostname or "", where.port or 0
            try:
                made = await join(LookupLink, host, port, _HELLO, self.connect_s_max)
            except ConnectError as error:
                self.binary_failed(address, str(error))
                raise
            self._asking[address] = made
            self.binary_answered(address)
            return made

    # --- which nodes there are --------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            try:
                await self.refresh()
            except Exception as error:  # noqa: BLE001 - a fault in one look must not end all
                _log.error("proxy.fault", exc_info=error)
            await asyncio.sleep(self._refresh_s)

    async def refresh(self) -> None:
        """Asks a node which ones there are, and each of those where its ports are."""
        for address in self.web_order():
            brokers = await self._brokers_at(address)
            if brokers is None:
                continue
            found = await asyncio.gather(*(self._status_of(each) for each in brokers))
            told = [each for each in found if each is not None]
            if told:
                self._learn(told)
                return

    def _learn(self, told: list[_Status]) -> None:
        web = {each.broker_id for each in told} - self._own
        binary = {_address_of(each.service_url) for each in told} - self._own - {""}
        is_new = self._web.learn(web)
        if self._binary.learn(binary) or is_new:
            _log.info("proxy.nodes", web=",".join(sorted(web)), binary=",".join(sorted(binary)))

    async def _brokers_at(self, address: str) -> list[str] | None:
        body = await self._asked(address, _BROKERS)
        with contextlib.suppress(msgspec.DecodeError):
            return msgspec.json.decode(body, type=list[str])
        return None

    async def _status_of(self, address: str) -> _Status | None:
        body = await self._asked(address, _STATUS)
        with contextlib.suppress(msgspec.DecodeError):
            return msgspec.json.decode(body, type=_Status)
        return None

    async def _asked(self, address: str, path: bytes) -> bytes:
        """The body of the answer; empty if there is none that is of use."""
        try:
            answer = await self.http.ask(address, NodeRequest("GET", path))
            try:
                parts = [chunk async for chunk in answer.chunks(self.http.answer_s_max)]
            finally:
                self.http.give_back(answer)
        except OperationError as error:
            self.web_failed(address, error)
            return b""
        self.web_answered(address)
        return b"".join(parts) if answer.status == _OK else b""


def _address_of(url: str) -> str:
    """host:port of a URL; "" if it has none."""
    try:
        parts = urlsplit(url)
        return parts.netloc if parts.port else ""
    except ValueError:
        return ""
