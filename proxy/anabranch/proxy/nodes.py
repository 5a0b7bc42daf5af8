"""`KnownNodes`: the nodes behind a proxy, those of them that answer, and connections to them.

The settings name some nodes. The proxy asks one that answers for the addresses of all, every ten
seconds.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from typing import Final, TypeVar
from urllib.parse import urlsplit

import msgspec

from anabranch.access import CredentialsError
from anabranch.broker.errors import OperationError, UnavailableError
from anabranch.broker.logging import get_logger
from anabranch.broker.node_http import NodeHttp, NodeRequest, NotLetInError, reason_in
from anabranch.broker.security.outgoing import UNAUTHORIZED, OutgoingAccess
from anabranch.proxy.settings import PROXY_PORTS, ProxySettings
from anabranch.wire.anabranch_pb2 import CommandConnect
from anabranch.wire.client import ClientConnection, join
from anabranch.wire.connection import PROTOCOL_VERSION
from anabranch.wire.errors import AuthenticationError, ConnectError, TurnedAwayError

CONNECT_S_MAX: Final = 3.0  # a node in reach answers in milliseconds; another one may be there
ANSWER_S_MAX: Final = (
    60.0  # a node waits up to 10 s for a bundle that moves, and a list may be long
)
REFRESH_S: Final = 10.0  # a new node may be unknown for so long, while the others serve
_TOKEN_CHECK_S: Final = 10.0  # a token that a node refuses is read again at once
_ADDRESSES: Final = b"/admin/v2/brokers/addresses"
_REFUSED: Final = (
    "give this proxy a role of its own, in the nodes' proxyRoles, and a token of it "
    "(brokerClientAuthenticationParameters)"
)
_LOOKING: Final = "anabranch-proxy-looks"  # a role of nobody, to see that nodes believe the proxy
_OK: Final = 200
_FORBIDDEN: Final = 403

_LinkT = TypeVar("_LinkT", bound=ClientConnection)
_log = get_logger()


class NodeTable:
    """The addresses, host:port, of one kind of port of the nodes.

    Those that were named stay, since they are what is left when nobody else answers.
    """

    def __init__(self, named: Iterable[str]) -> None:
        self._named = tuple(dict.fromkeys(named))
        self._learnt: tuple[str, ...] = ()
        self._failing: dict[str, str] = {}  # why; who failed last stands last
        self._turn = 0

    @property
    def addresses(self) -> tuple[str, ...]:
        """All of them, those that the cluster itself tells first."""
        return tuple(dict.fromkeys((*self._learnt, *self._named)))

    @property
    def failing(self) -> tuple[str, ...]:
        """Those that did not answer the last time."""
        return tuple(self._failing)

    @property
    def answering(self) -> int:
        """The number of those that did not fail when they were asked last."""
        return len(self.addresses) - len(self._failing)

    def learn(self, addresses: Iterable[str]) -> bool:
        """The cluster consists of these now. True if that is new."""
        learnt = tuple(sorted(set(addresses)))
        is_new = learnt != self._learnt
        self._learnt = learnt
        for gone in self._failing.keys() - set(self.addresses):
            del self._failing[gone]
        return is_new

    def order(self) -> list[str]:
        """The addresses, best first: those that answer, by turns; then those that failed."""
        self._turn += 1
        named = tuple(each for each in self._named if each not in self._learnt)
        well = (*self._rotated(self._learnt), *self._rotated(named))
        return [*(each for each in well if each not in self._failing), *self._failing]

    def failed(self, address: str, why: str) -> None:
        """It did not answer."""
        if address not in self.addresses:
            return
        if self._failing.pop(address, None) is None:
            _log.warning("proxy.node_lost", node=address, why=why)
        self._failing[address] = why

    def answered(self, address: str) -> None:
        """It is there."""
        if self._failing.pop(address, None) is not None:
            _log.info("proxy.node_back", node=address)

    def _rotated(self, addresses: tuple[str, ...]) -> tuple[str, ...]:
        at = self._turn % len(addresses) if addresses else 0
        return (*addresses[at:], *addresses[:at])


class KnownNodes:
    """On one event loop. Raises StartError where the settings' files cannot be used."""

    def __init__(self, settings: ProxySettings) -> None:
        self.access: Final = OutgoingAccess(settings.broker_client, _TOKEN_CHECK_S)
        self.tls: Final = self.access.tls if settings.is_tls_with_nodes else None
        is_tls = self.tls is not None
        self.http: Final = NodeHttp(CONNECT_S_MAX, ANSWER_S_MAX, self.access, is_tls=is_tls)
        self.web: Final = NodeTable(settings.web_nodes)
        self.binary: Final = NodeTable(())
        self.refusal = ""  # why nodes do not take what this proxy shows of itself
        # Never asked, though a load balancer may be called so: the question would come back here.
        self._own = {address_of(settings.url_of(each)) for each in PROXY_PORTS} | {""}
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Looks which nodes there are, until `close`."""
        self.access.start()
        self._task = asyncio.create_task(self._run(), name="nodes")

    async def close(self) -> None:
        """Ends what was begun."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self.access.stop()
        await self.http.close()

    @property
    def known(self) -> int:
        """The number of nodes, by the kind of port that more are known of."""
        return max(len(self.web.addresses), len(self.binary.addresses))

    @property
    def answering(self) -> int:
        """The number of nodes that answer, by the kind of port that is worse off."""
        return min(self.web.answering, self.binary.answering)

    def is_own(self, address: str) -> bool:
        """True for an address of this proxy, and for none."""
        return address in self._own

    async def joined(
        self, make: Callable[[], _LinkT], address: str, hello: CommandConnect
    ) -> _LinkT:
        """A connection to that node, to which this proxy has shown who it is.

        Raises ConnectError, AuthenticationError, CredentialsError.
        """
        where = urlsplit(f"//{address}")
        try:
            made = await join(
                make,
                where.hostname or "",
                where.port or 0,
                hello,
                CONNECT_S_MAX,
                self.tls,
                self.access.credentials,
            )
        except TurnedAwayError:
            raise  # the node is there, and may have room for others
        except ConnectError as error:
            self.binary.failed(address, str(error))
            raise
        self.binary.answered(address)
        return made

    async def refresh(self) -> None:
        """Asks a node which ones there are, and tries again those whose binary port has failed."""
        for address in self.web.order():
            body = await self._asked(address)
            told: list[dict[str, str]] = []
            with contextlib.suppress(msgspec.DecodeError):
                told = msgspec.json.decode(body, type=list[dict[str, str]])
            if told:
                self._learn(told)
                break
        for address in self.binary.failing:
            with contextlib.suppress(ConnectError, AuthenticationError, CredentialsError):
                hello = CommandConnect(
                    client_version="anabranch-proxy", protocol_version=PROTOCOL_VERSION
                )
                found = await self.joined(ClientConnection, address, hello)
                found.abort("it answers")

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(REFRESH_S)
            try:
                await self.refresh()
            except Exception as error:  # noqa: BLE001 - a fault in one look must not end all
                _log.error("proxy.fault", exc_info=error)

    def _learn(self, told: list[dict[str, str]]) -> None:
        suffix = "" if self.tls is None else "Tls"
        web, binary = (
            {address_of(each.get(f"{kind}ServiceUrl{suffix}", "")) for each in told} - self._own
            for kind in ("web", "broker")
        )
        is_new = self.web.learn(web)
        if self.binary.learn(binary) or is_new:
            _log.info("proxy.nodes", web=",".join(sorted(web)), binary=",".join(sorted(binary)))

    async def _asked(self, address: str) -> bytes:
        """The body of the node's answer; empty if there is none that is of use."""
        try:
            answer = await self.http.ask(address, NodeRequest("GET", _ADDRESSES, asker=_LOOKING))
            body = await answer.whole()
            if answer.status in (UNAUTHORIZED, _FORBIDDEN):  # the proxy shows nothing, or is none
                raise NotLetInError(f"node {address} does not answer this proxy: {reason_in(body)}")
        except OperationError as error:
            self.web.failed(address, str(error))
            if isinstance(error, NotLetInError):
                if not self.refusal:
                    _log.error(
                        "proxy.credentials_refused", node=address, why=error, remedy=_REFUSED
                    )
                self.refusal = str(error)
            return b""
        self.web.answered(address)
        if answer.status != _OK:
            return b""
        if self.refusal:
            self.refusal = ""
            _log.info("proxy.credentials_taken", node=address)
        return body

    def nobody(self, failures: list[str]) -> UnavailableError:
        """The error when no node could be asked."""
        said = "; ".join(failures) or "none is known; name one in brokerWebServiceURL"
        return UnavailableError(f"no node answers this proxy: {said}")


def address_of(url: str) -> str:
    """host:port of a URL; "" if it has none."""
    try:
        parts = urlsplit(url)
        return parts.netloc if parts.port else ""
    except ValueError:
        return ""
