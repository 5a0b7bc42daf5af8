"""`KnownNodes`: the nodes behind a proxy, how to reach each, and who controls a topic.

The settings name some; of any that answers the others are learnt, again and again. Whether one is
well is not asked but seen: by what becomes of connections to it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final, TypeVar
from urllib.parse import urlsplit

import msgspec

from anabranch.access import CredentialsError
from anabranch.broker.errors import OperationError, UnavailableError
from anabranch.broker.logging import get_logger
from anabranch.broker.node_http import (
    NodeHttp,
    NodeRequest,
    NotLetInError,
    reason_in,
)
from anabranch.broker.proxy.nodes.lookup_link import Asker, LookupLink
from anabranch.broker.proxy.nodes.table import NodeTable
from anabranch.broker.security.outgoing import UNAUTHORIZED, OutgoingAccess
from anabranch.broker.settings.proxy import ProxySettings
from anabranch.wire import clock
from anabranch.wire.anabranch_pb2 import (
    BaseCommand,
    CommandConnect,
    CommandLookupTopic,
    FeatureFlags,
    ServerError,
)
from anabranch.wire.client import ClientConnection, join
from anabranch.wire.connection import PROTOCOL_VERSION
from anabranch.wire.errors import (
    AuthenticationError,
    ConnectError,
    ConnectionLostError,
    RefusedError,
    WireError,
)
from anabranch.wire.supervised import supervised

_BROKERS: Final = b"/admin/v2/brokers"
_STATUS: Final = b"/admin/v2/brokers/status"
_ADDRESSES: Final = b"/admin/v2/brokers/addresses"
_REFUSED: Final = (
    "give this proxy a role of its own, in the nodes' proxyRoles, and a token or certificate of it "
    "(brokerClientAuthenticationPlugin)"
)
_LOOKING: Final = "anabranch-proxy-looks"  # a role of nobody, to see that nodes believe the proxy
_OK: Final = 200
_FORBIDDEN: Final = 403
_ANSWER_S_MAX: Final = 15.0  # a node waits up to 10 s for a bundle that moves
_HELLO: Final = CommandConnect(
    client_version="anabranch-proxy",
    protocol_version=PROTOCOL_VERSION,
    feature_flags=FeatureFlags(supports_scalable_topics=True, reads_kafka=True),
)

_LinkT = TypeVar("_LinkT", bound=ClientConnection)

_log = get_logger()


class _Status(msgspec.Struct, rename="camel"):
    """Of a node's own words, what is needed."""

    broker_id: str
    service_url: str


class _Addresses(msgspec.Struct, rename="camel"):
    """Where a node is by TLS, as any of them knows; "" for nowhere."""

    web_service_url_tls: str
    broker_service_url_tls: str


class KnownNodes:
    """On one event loop; `run` looks again and again which nodes there are."""

    def __init__(self, settings: ProxySettings, now: Callable[[], float] = clock.now) -> None:
        self.connect_s_max: Final = settings.broker_proxy_connect_timeout_ms / 1000
        self.access: Final = OutgoingAccess(settings, settings.authentication_files_check_seconds)
        self.tls: Final = self.access.tls if settings.is_tls_with_nodes else None
        self.http: Final = NodeHttp(
            self.connect_s_max,
            settings.http_proxy_timeout / 1000,
            self.access,
            is_tls=self.tls is not None,
        )
        self._refusals: dict[str, str] = {}  # by node, why it does not take what is shown to it
        self._web = NodeTable(settings.web_nodes)
        self._binary = NodeTable(settings.binary_nodes)
        self._refresh_s = settings.broker_list_refresh_seconds
        # Never asked, though a load balancer may be called so: the question would come back here.
        web, binary = settings.web_url, settings.service_url
        own = (web, settings.web_url_tls, binary, settings.service_url_tls)
        self._own = {_address_of(url) for url in own} - {""}
        self._now = now
        self._asking: dict[str, LookupLink] = {}
        self._shared: LookupLink | None = None  # of these, the one for clients' look-ups
        self._sharing: asyncio.Task[None] | None = None
        self._opening: dict[str, asyncio.Task[LookupLink]] = {}  # by node
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Looks which nodes there are, from now on."""
        self.access.start()
        self._task = asyncio.create_task(self._run(), name="nodes")

    async def close(self) -> None:
        """Ends what was begun."""
        held = (self._task, self._sharing, *self._opening.values())
        tasks = [each for each in held if each is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.access.stop()
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

    def refused(self, address: str, why: str) -> None:
        """The node does not take what this proxy shows of itself."""
        if address not in self._refusals:
            _log.error("proxy.credentials_refused", node=address, why=why, remedy=_REFUSED)
        self._refusals[address] = why

    def taken(self, address: str) -> None:
        """It does."""
        if self._refusals.pop(address, None) is not None:
            _log.info("proxy.credentials_taken", node=address)

    @property
    def refusal(self) -> str:
        """Why nodes do not take what this proxy shows of itself; "": none has said so."""
        return "; ".join(self._refusals.values())

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
            self._sharing = supervised(self._share(), "look-ups")
        return False

    async def _share(self) -> None:
        try:
            for address in self.binary_order():
                with contextlib.suppress(ConnectError, AuthenticationError, CredentialsError):
                    self._shared = await self._asking_of(address)
                    return
        finally:
            self._sharing = None

    # --- who controls a topic ---------------------------------------------------------------

    async def controller_of(self, topic: str, asker: str) -> str:
        """host:port of the binary port of the node that controls the topic, for whom may know it.

        Raises RefusedError: the node's own, or ServiceNotReady when none answers.
        """
        failures: list[str] = []
        for address in self.binary_order():
            try:
                answer = await self._found_by(address, topic, asker)
            except RefusedError:
                raise
            except (WireError, CredentialsError) as error:
                self.binary_failed(address, str(error))
                failures.append(str(error))
                continue
            said = answer.lookupTopicResponse
            url = said.brokerServiceUrl if self.tls is None else said.brokerServiceUrlTls
            found = _address_of(url)
            if found and found not in self._own:
                return found
            failures.append(f"{address} names {found or 'nobody'} as the controller")
        raise RefusedError(ServerError.ServiceNotReady, self.nobody(failures))

    async def _found_by(self, address: str, topic: str, asker: str) -> BaseCommand:
        """Raises WireError, CredentialsError."""
        question = CommandLookupTopic(topic=topic)
        if asker:
            question.original_principal = asker
        connection = await self._asking_of(address)
        try:
            return await connection.request(question, _ANSWER_S_MAX)
        except ConnectionLostError:
            if not connection.was_ended:
                raise
        connection = await self._asking_of(address)  # the question met the end of an idle one
        return await connection.request(question, _ANSWER_S_MAX)

    def nobody(self, failures: list[str]) -> str:
        """What to say when no node could be asked."""
        said = "; ".join(failures) or "none is known; name one in brokerServiceURL"
        return f"no node answers this proxy: {said}"

    async def joined(
        self, make: Callable[[], _LinkT], address: str, hello: CommandConnect
    ) -> _LinkT:
        """A connection to that node, to which this proxy has shown who it is.

        Raises ConnectError, AuthenticationError, CredentialsError.
        """
        where = urlsplit(f"//{address}")
        return await join(
            make,
            where.hostname or "",
            where.port or 0,
            hello,
            self.connect_s_max,
            self.tls,
            self.access.credentials,
        )

    async def _asking_of(self, address: str) -> LookupLink:
        """The one link to that node; who wants it while it is made waits for no other node.

        Raises ConnectError, AuthenticationError, CredentialsError.
        """
        known = self._asking.get(address)
        if known is not None and known.is_open:
            return known
        opening = self._opening.get(address)
        if opening is None:
            opening = asyncio.create_task(self._open(address), name="link to a node")
            self._opening[address] = opening
            opening.add_done_callback(lambda _: self._opening.pop(address))
        return await asyncio.shield(opening)  # others may wait for it, too

    async def _open(self, address: str) -> LookupLink:
        hello = CommandConnect()
        hello.CopyFrom(_HELLO)
        try:
            made = await self.joined(LookupLink, address, hello)
        except AuthenticationError as error:
            self.binary_failed(address, str(error))
            self.refused(address, str(error))
            raise
        except (ConnectError, CredentialsError) as error:
            self.binary_failed(address, str(error))
            raise
        self._asking[address] = made
        self.taken(address)
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
            if await (self._look_at(address) if self.tls is None else self._look_by_tls(address)):
                return

    async def _look_at(self, address: str) -> bool:
        """Whether it is known by that node what there is."""
        brokers = await self._brokers_at(address)
        found = await asyncio.gather(*(self._status_of(each) for each in brokers))
        told = [each for each in found if each is not None]
        if told:
            self._learn(
                {each.broker_id for each in told},
                {_address_of(each.service_url) for each in told},
            )
        return bool(told)

    async def _look_by_tls(self, address: str) -> bool:
        """The same with TLS: a broker's id has the port without."""
        body = await self._asked(address, _ADDRESSES)
        told: list[_Addresses] = []
        with contextlib.suppress(msgspec.DecodeError):
            told = msgspec.json.decode(body, type=list[_Addresses])
        if told:
            self._learn(
                {_address_of(each.web_service_url_tls) for each in told},
                {_address_of(each.broker_service_url_tls) for each in told},
            )
        return bool(told)

    def _learn(self, web: set[str], binary: set[str]) -> None:
        web, binary = web - self._own - {""}, binary - self._own - {""}
        is_new = self._web.learn(web)
        if self._binary.learn(binary) or is_new:
            _log.info("proxy.nodes", web=",".join(sorted(web)), binary=",".join(sorted(binary)))
            there = {*self._web.addresses, *self._binary.addresses}
            for gone in self._refusals.keys() - there:
                del self._refusals[gone]

    async def _brokers_at(self, address: str) -> list[str]:
        body = await self._asked(address, _BROKERS)
        with contextlib.suppress(msgspec.DecodeError):
            return msgspec.json.decode(body, type=list[str])
        return []

    async def _status_of(self, address: str) -> _Status | None:
        body = await self._asked(address, _STATUS)
        with contextlib.suppress(msgspec.DecodeError):
            return msgspec.json.decode(body, type=_Status)
        return None

    async def _asked(self, address: str, path: bytes) -> bytes:
        """The body of the answer; empty if there is none that is of use."""
        try:
            answer = await self.http.ask(address, NodeRequest("GET", path, asker=_LOOKING))
            body = await self.http.whole(answer)
        except OperationError as error:
            self.web_failed(address, error)
            if isinstance(error, NotLetInError):
                self.refused(address, str(error))
            return b""
        if answer.status in (UNAUTHORIZED, _FORBIDDEN):  # to a proxy that shows nothing, or is none
            why = f"node {address} does not answer this proxy: {reason_in(body)}"
            self.web_failed(address, UnavailableError(why))
            self.refused(address, why)
            return b""
        self.web_answered(address)
        if answer.status != _OK:
            return b""
        self.taken(address)
        return body


def _address_of(url: str) -> str:
    """host:port of a URL; "" if it has none."""
    try:
        parts = urlsplit(url)
        return parts.netloc if parts.port else ""
    except ValueError:
        return ""
