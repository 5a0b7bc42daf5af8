"""`LookupLink`: one connection to a node for the look-ups of many clients.

A look-up is small and asked often, so that its price is that of the connections that it goes over:
those of many clients share one write and one read. Ids are exchanged for the link's own. More than
some never wait on it: so nobody's that are slow, for bundles that move, hold back the others'.
"""

from __future__ import annotations

import itertools
from typing import Final, NamedTuple, Protocol

from anabranch.broker.proxy.link import is_about_link
from anabranch.wire import commands
from anabranch.wire.anabranch_pb2 import BaseCommand
from anabranch.wire.client import ClientConnection
from anabranch.wire.connection import ConnectionLimits
from anabranch.wire.framing import LIST_FRAME_BYTES_MAX

WAITING_MAX: Final = 500  # a node serves 1,000 of one connection at once
_FIRST_ID: Final = 1 << 40  # below are those of `request`
_LIMITS: Final = ConnectionLimits(frame_bytes_max=LIST_FRAME_BYTES_MAX, keep_alive_s=5.0)


class Asker(Protocol):
    """Who wants to know."""

    def lookup_answered(self, number: int, answer: BaseCommand) -> None:
        """The answer to the look-up of that number, under another one."""

    def lookup_lost(self, number: int, command: BaseCommand) -> None:
        """No answer comes: the node has gone. The look-up has its own number again."""


class _Waiting(NamedTuple):
    asker: Asker
    number: int
    command: BaseCommand


class LookupLink(ClientConnection):
    """A connection of the proxy's own to a node."""

    def __init__(self) -> None:
        super().__init__(limits=_LIMITS)
        self.was_ended = False  # by a node that has said why, such as for being idle
        self._shared: dict[int, _Waiting] = {}
        self._numbers = itertools.count(_FIRST_ID)

    @property
    def has_room(self) -> bool:
        """Whether another look-up may be passed on."""
        return self.is_open and self.is_drained and len(self._shared) < WAITING_MAX

    def pass_on(self, asker: Asker, command: BaseCommand) -> None:
        """Asks; `command` is a whole LOOKUP, and is the link's until it is answered."""
        said = command.lookupTopic
        own = next(self._numbers)
        self._shared[own] = _Waiting(asker, said.request_id, command)
        said.request_id = own
        self._send(command)

    def received(self, command: BaseCommand) -> None:
        if command.type == BaseCommand.LOOKUP_RESPONSE:
            waiting = self._shared.pop(command.lookupTopicResponse.request_id, None)
            if waiting is not None and not commands.lacking(command):
                waiting.asker.lookup_answered(waiting.number, command)
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
            waiting.command.lookupTopic.request_id = waiting.number
            waiting.asker.lookup_lost(waiting.number, waiting.command)
