"""`ClientLinks`: the links of one client, one to each node that it needs, opened on demand."""

from __future__ import annotations

import asyncio
from typing import Final

from anabranch.access import CredentialsError
from anabranch.broker.proxy.nodes.known import KnownNodes
from anabranch.broker.proxy.nodes.link import Asked, LinkOwner, NodeLink
from anabranch.wire.anabranch_pb2 import CommandConnect, ServerError
from anabranch.wire.errors import (
    AuthenticationError,
    ConnectError,
    RefusedError,
    TurnedAwayError,
)

_NOT_OPENED: Final = (ConnectError, AuthenticationError, CredentialsError)


class ClientLinks:
    """On one event loop; all end with the client."""

    def __init__(self, owner: LinkOwner, nodes: KnownNodes, hello: CommandConnect) -> None:
        self.home: NodeLink | None = None
        self._owner = owner
        self._nodes = nodes
        self._hello = hello  # what the client has said of itself
        self._links: dict[str, NodeLink] = {}  # by host:port
        self._opening = asyncio.Lock()
        self._is_paused = False
        self._is_over = False

    @property
    def is_idle(self) -> bool:
        """Whether no node owes an answer."""
        return not any(link.asked for link in self._links.values())

    @property
    def owed_most(self) -> int:
        """How many answers the node owes that owes the most."""
        return max((len(link.asked) for link in self._links.values()), default=0)

    async def at_home(self) -> NodeLink:
        """The home, another one if it is gone. Raises RefusedError when no node answers."""
        if self.home is not None and self.home.is_open:
            return self.home
        failures: list[str] = []
        code = ServerError.ServiceNotReady
        async with self._opening:
            if self.home is not None and self.home.is_open:
                return self.home
            for address in self._nodes.binary_order():
                try:
                    self.home = await self._opened(address)
                except _NOT_OPENED as error:
                    failures.append(str(error))
                    if _code_of(error) == ServerError.TooManyRequests:
                        code = ServerError.TooManyRequests
                else:
                    return self.home
        if code == ServerError.TooManyRequests:
            raise RefusedError(code, f"no node takes one more connection: {'; '.join(failures)}")
        raise RefusedError(code, self._nodes.nobody(failures))

    async def to(self, address: str) -> NodeLink:
        """A link to that node. Raises RefusedError when it does not answer."""
        async with self._opening:
            try:
                return await self._opened(address)
            except _NOT_OPENED as error:
                raise RefusedError(_code_of(error), str(error)) from error

    def pause(self) -> None:
        """Nothing more is read from nodes, until `resume`."""
        self._is_paused = True
        for link in self._links.values():
            link.pause()

    def resume(self) -> None:
        """Nodes are read again."""
        self._is_paused = False
        for link in list(self._links.values()):
            link.resume()

    def forget(self, request_id: int) -> Asked | None:
        """What was asked under that id, for whose answer nobody waits any more."""
        found = (link.asked.pop(request_id, None) for link in self._links.values())
        return next((asked for asked in found if asked is not None), None)

    def lost(self, link: NodeLink) -> bool:
        """Leaves out a link that has ended. False if it was none of these."""
        if self._links.get(link.node) is not link:
            return False
        del self._links[link.node]
        return True

    def drop_if_unused(self, link: NodeLink) -> None:
        """Ends a link that carries nothing."""
        if link is self.home or link.consumers or link.asked:
            return
        if self.lost(link):
            link.close("nothing of its client is there any more")

    def end(self) -> None:
        """Ends all of them, at once and for good."""
        self._is_over = True
        links, self._links = list(self._links.values()), {}
        for link in links:
            link.abort("its client has gone")

    async def _opened(self, address: str) -> NodeLink:
        """Raises ConnectError, AuthenticationError, CredentialsError."""
        known = self._links.get(address)
        if known is not None and known.is_open:
            return known
        hello = CommandConnect()
        hello.CopyFrom(self._hello)
        try:
            link = await self._nodes.joined(lambda: NodeLink(self._owner, address), address, hello)
        except TurnedAwayError:
            raise  # the node is there, and may have room for others
        except ConnectError as error:
            self._nodes.binary_failed(address, str(error))
            raise
        self._nodes.binary_answered(address)
        if self._is_over:
            link.abort("its client has gone")
            raise ConnectError("the client has gone")
        self._links[address] = link
        if self._is_paused:
            link.pause()
        return link


def _code_of(error: Exception) -> ServerError:
    """What a client is told where no node takes its link: what that node has said, of too many."""
    return error.code if isinstance(error, TurnedAwayError) else ServerError.ServiceNotReady
