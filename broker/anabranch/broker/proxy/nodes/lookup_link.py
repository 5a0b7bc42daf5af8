"""`LookupLink`: one connection to a node for the look-ups of many clients.

A look-up is small and asked often, so that its price is that of the connections that it goes over:
those of many clients share one write and one read: what comes in one turn of the event loop goes
out together. Ids are exchanged for the link's own. More than some never wait on it: so nobody's
that are slow, for bundles that move, hold back the others'.
"""

from __future__ import annotations

import asyncio
import itertools
from typing import Final, Protocol

from anabranch.broker.proxy.nodes.link import is_about_link
from anabranch.wire.anabranch_pb2 import BaseCommand
from anabranch.wire.client import ClientConnection
from anabranch.wire.connection import ConnectionLimits
from anabranch.wire.framing import LIST_FRAME_BYTES_MAX, encode_frame

WAITING_MAX: Final = 500  # a node serves 1,000 of one connection at once
_GATHERED_BYTES_MAX: Final = 64 * 1024
_FIRST_ID: Final = 1 << 40  # below are those of `request`
_LIMITS: Final = ConnectionLimits(frame_bytes_max=LIST_FRAME_BYTES_MAX, keep_alive_s=5.0)


class Asker(Protocol):
    """Who wants to know."""

    def lookup_answered(self, number: int, answer: BaseCommand) -> None:
        """The answer to the look-up of that number, under another one."""

    def lookup_lost(self, number: int, command: BaseCommand) -> None:
        """No answer comes: the node has gone. The look-up has its own number again."""


_Waiting = tuple[Asker, int, BaseCommand]  # with the number that the asker knows it by


class LookupLink(ClientConnection):
    """A connection of the proxy's own to a node."""

    def __init__(self) -> None:
        super().__init__(limits=_LIMITS)
        self.was_ended = False  # by a node that has said why, such as for being idle
        self._shared: dict[int, _Waiting] = {}
        self._numbers = itertools.count(_FIRST_ID)
        self._gathered: list[bytes] = []  # frames that go out when this turn is over
        self._gathered_bytes = 0

    def reads(self) -> asyncio.BaseProtocol:
        """What comes is small and much: the event loop's own buffer is quicker."""
        return self

    def take(self, asker: Asker, command: BaseCommand) -> bool:
        """Asks; `command` is a whole LOOKUP, and is the link's until it is answered. False: there
        is no room for it.
        """
        if not self.is_open or len(self._shared) >= WAITING_MAX or not self.is_drained:
            return False
        said = command.lookupTopic
        own = next(self._numbers)
        self._shared[own] = (asker, said.request_id, command)
        said.request_id = own
        frame = encode_frame(command.SerializeToString(), self.limits.frame_bytes_max)
        if not self._gathered:
            self._loop.call_soon(self._send_gathered)
        self._gathered.append(frame)
        self._gathered_bytes += len(frame)
        if self._gathered_bytes > _GATHERED_BYTES_MAX:
            self._send_gathered()
        return True

    def _send_gathered(self) -> None:
        gathered, self._gathered, self._gathered_bytes = self._gathered, [], 0
        if gathered:
            self.send_frame(b"".join(gathered))

    def received(self, command: BaseCommand) -> None:
        if command.type == BaseCommand.LOOKUP_RESPONSE:
            waiting = self._shared.pop(command.lookupTopicResponse.request_id, None)
            if waiting is not None:
                asker, number, asked = waiting
                if command.IsInitialized():
                    asker.lookup_answered(number, command)
                else:  # no answer that anybody could read
                    _lose(asker, number, asked)
                return
        if self.welcomed.done() and is_about_link(command):
            self.was_ended = True
            self.close(f"the node ends it: {command.error.message}")
            return
        super().received(command)

    def ended(self, reason: str) -> None:
        super().ended(reason)
        shared, self._shared = self._shared, {}
        for waiting in shared.values():
            _lose(*waiting)


def _lose(asker: Asker, number: int, command: BaseCommand) -> None:
    command.lookupTopic.request_id = number
    asker.lookup_lost(number, command)
