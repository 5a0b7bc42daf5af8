"""`NodeLink`: a client's own connection to one node, so that all ids pass through unchanged.

What one client has under way is nobody else's affair: its links end with it, and a node sees the
end of a client as it would without a proxy. Lists of topics are not decoded: a link stops reading
when one begins, and goes on when there is memory for all of it.
"""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

import msgspec

from anabranch.wire import commands
from anabranch.wire.anabranch_pb2 import BaseCommand, ServerError
from anabranch.wire.client import ClientConnection
from anabranch.wire.connection import ConnectionLimits
from anabranch.wire.errors import FrameError
from anabranch.wire.framing import FRAME_BYTES_MAX, LIST_FRAME_BYTES_MAX

LINK_LIMITS: Final = ConnectionLimits(
    frame_bytes_max=LIST_FRAME_BYTES_MAX,  # whatever brokerMaxFrameSize lets clients send
    unsent_bytes_max=2 * FRAME_BYTES_MAX,
    keep_alive_s=10.0,  # a node that is gone without a word is left after twice that
)
# Lists, of any length, by the number of their type.
LISTS: Final = frozenset(
    {
        BaseCommand.GET_TOPICS_OF_NAMESPACE_RESPONSE,
        BaseCommand.WATCH_TOPIC_LIST_SUCCESS,
        BaseCommand.WATCH_TOPIC_UPDATE,
        BaseCommand.WATCH_SCALABLE_TOPICS_UPDATE,
    }
)
# Of a list, before it is known whether there is memory for it.
PIECE_BYTES_MAX: Final = 8 * 1024
_TYPE_TAG: Final = 0x08  # the field `type` comes first, and the types of lists have one byte
_HEAD_BYTES: Final = 2
_OWN_SIZE_BYTES: Final = 4  # that a frame's total counts besides the command
_LIST_HEAD_BYTES: Final = 512  # in which stands whose a list is, and its hash


def is_about_link(command: BaseCommand) -> bool:
    """Whether a node answers nothing with it: it says why it ends the connection."""
    return command.type == BaseCommand.ERROR and command.error.request_id == commands.NO_REQUEST


class Asked(msgspec.Struct):
    """A request that a node has not answered yet."""

    command: BaseCommand
    attempts: int = 1


class LinkOwner(Protocol):
    """Whose link it is."""

    def answered(self, link: NodeLink, command: BaseCommand) -> None:
        """A command of the node for the client, no list."""

    def list_begins(self, link: NodeLink, type_number: int, frame_bytes: int) -> None:
        """A list begins; the link reads on when told to take it, or to leave it out."""

    def link_ended(self, link: NodeLink, reason: str) -> None:
        """The link is gone, or about to end; may be told twice."""


class NodeLink(ClientConnection):
    """One client's connection to one node."""

    piece_bytes_max = PIECE_BYTES_MAX

    def __init__(self, owner: LinkOwner, node: str) -> None:
        super().__init__(limits=LINK_LIMITS)
        self.node = node  # host:port
        self.asked: dict[int, Asked] = {}  # by request id
        self.consumers: set[int] = set()  # ids of those that this node serves, or is to
        # Why the node gives up a watch of a topic list, for which there is no way to say so but an
        # end: its client's right is gone, or it takes too much.
        self.revoked = ""
        self.too_much = ""
        self.was_idle = False  # for which the node has ended it: what is asked, it has not taken
        self._owner = owner
        self._is_paused = False  # by the owner
        self._is_in_list = False
        self._is_left_out = False  # the list that has begun; what follows waits
        self._admitted = False  # the list that has begun
        self._list: asyncio.Future[bytes | bytearray] | None = None

    def ask(self, request_id: int, asked: Asked) -> None:
        """Passes on a request that will be answered, or handed back when the link ends."""
        self.asked[request_id] = asked
        self.tell(asked.command)

    def tell(self, command: BaseCommand) -> None:
        """Passes on a command that has no answer."""
        self.send_command(command)

    def pause(self) -> None:
        """Reads nothing more, but the list that was begun, until `resume`."""
        self._is_paused = True
        self.hold()

    def resume(self) -> None:
        """Reads on."""
        self._is_paused = False
        self._read_on()

    def list_head(self) -> bytes:
        """The first bytes of the list that has begun; all of it where it is short."""
        return self._decoder.beginning(_LIST_HEAD_BYTES)

    async def take_list(self) -> bytes | bytearray:
        """The list that has begun, undecoded; nothing is read behind it until `list_over`.

        Raises asyncio.CancelledError when the link ends first, or has ended.
        """
        self._admitted = True
        self._list = self._loop.create_future()
        if self.closed.done():  # and nobody else would tell it
            self._list.cancel()
        self.go_on()
        return await self._list

    def leave_out_list(self) -> None:
        """Drops the list that has begun, as it comes, if it was not taken."""
        if self._is_in_list and self._list is None and not self._is_left_out:
            self._is_left_out = True
            self._decoder.skip()
            self.go_on()

    def list_over(self) -> None:
        """Reads on behind the list that was taken, or left out."""
        self._is_in_list = self._is_left_out = False
        self._list = None
        self._read_on()

    def _read_on(self) -> None:
        if not self._is_paused and not self._is_in_list:
            self.go_on()

    # --- what comes from the node ---------------------------------------------------------

    def next_command(self) -> bytes | bytearray | None:
        if self._is_left_out:
            if self._decoder.unfinished_bytes:
                self.hold()
            return None
        if not self._admitted:
            begun = self._decoder.begun(_HEAD_BYTES)
            if begun is None:
                return None
            total, head = begun
            if head[0] == _TYPE_TAG and head[1] in LISTS:
                if self._decoder.begun(min(_LIST_HEAD_BYTES, total - _OWN_SIZE_BYTES)) is None:
                    return None
                if total <= LIST_FRAME_BYTES_MAX:
                    self._is_in_list = True
                    self.hold()
                    self._owner.list_begins(self, head[1], total)
                    return None
            elif total > FRAME_BYTES_MAX:
                raise FrameError(f"a frame of {total} bytes that is no list of topics")
        return super().next_command()

    def arrived(self, data: bytes | bytearray) -> None:
        if not self._admitted:
            super().arrived(data)
            return
        self._admitted = False
        self.hold()
        if self._list is not None and not self._list.done():
            self._list.set_result(data)

    def received(self, command: BaseCommand) -> None:
        if not self.welcomed.done() or command.type == BaseCommand.AUTH_CHALLENGE:
            super().received(command)  # it is the proxy's own that has expired, no client's
        elif is_about_link(command):
            self.was_idle = command.error.error == ServerError.ServiceNotReady
            if command.error.error == ServerError.AuthorizationError:
                self.revoked = command.error.message
            elif command.error.error == ServerError.TooManyRequests:
                self.too_much = command.error.message
            self.close(f"the node ends it: {command.error.message}")
        elif not commands.lacking(command):
            self._owner.answered(self, command)

    def _ends_by(self, why: str) -> None:
        super()._ends_by(why)
        # Not only once its bytes are out: by then another link may have its place.
        self._owner.link_ended(self, why)

    def ended(self, reason: str) -> None:
        super().ended(reason)
        if self._list is not None and not self._list.done():
            self._list.cancel()
        self._owner.link_ended(self, reason)
