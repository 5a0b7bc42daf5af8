"""`NodeLink`: a client's own connection to one node, so that all ids pass through unchanged.

A node sees the end of a client as it would without a proxy. Lists of topics are not decoded: a link
stops reading where a list begins, and goes on when there is memory for all of it.
"""

from __future__ import annotations

import asyncio
import itertools
from typing import Final, NamedTuple, Protocol

from anabranch.wire import commands
from anabranch.wire.anabranch_pb2 import BaseCommand, CommandError
from anabranch.wire.client import ClientConnection
from anabranch.wire.connection import ConnectionLimits
from anabranch.wire.errors import FrameError
from anabranch.wire.framing import FRAME_BYTES_MAX, LIST_FRAME_BYTES_MAX
from anabranch.wire.shared_reads import SCRATCH_BYTES, SharedReads

LINK_LIMITS: Final = ConnectionLimits(
    frame_bytes_max=LIST_FRAME_BYTES_MAX,  # whatever clients may send
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
PIECE_BYTES_MAX: Final = 8 * 1024  # of a list, before it is known whether there is memory for it
OWN_IDS: Final = 1 << 63  # of what the proxy itself asks; no client counts that far
_LIST: Final = "a list has begun"  # why a link reads nothing more
_TYPE_TAG: Final = 0x08  # the field `type` comes first, and the types of lists have one byte
_HEAD_BYTES: Final = 2


class Asked(NamedTuple):
    """A request that a node has not answered yet, without what it says."""

    type_number: int
    consumer: int | None  # the id of the consumer whose session it is about


class LinkOwner(Protocol):
    """The session of the link's client."""

    def answered(self, link: NodeLink, command: BaseCommand) -> None:
        """A command of the node for the client, no list."""

    def list_begins(self, link: NodeLink, type_number: int, frame_bytes: int) -> None:
        """A list begins; the link reads on when told to take it, or to leave it out."""

    def link_ended(self, link: NodeLink, reason: str) -> None:
        """The link is gone, or about to end; may be told twice."""


class NodeLink(ClientConnection):
    """One client's connection to one node."""

    def __init__(self, owner: LinkOwner, node: str) -> None:
        super().__init__(limits=LINK_LIMITS)
        self.node = node  # host:port
        self.asked: dict[int, Asked] = {}  # by request id
        self.consumers: set[int] = set()  # ids of those that this node serves, or is to
        self.farewell: CommandError | None = None  # of a node that says why it ends the link
        self._owner = owner
        self._ids = itertools.count(OWN_IDS)
        self.piece_bytes = PIECE_BYTES_MAX  # the most that is read at once
        self._is_judged = False  # the frame that has begun: it is no list, or one that is taken
        self._list: asyncio.Future[bytes | bytearray] | None = None

    def reads(self) -> asyncio.BaseProtocol:
        """Returns the protocol that takes received bytes from the event loop, in pieces."""
        return _Pieces(self)

    @property
    def unsent(self) -> int:
        """The bytes that its node has not taken."""
        return self._transport.get_write_buffer_size() if self._transport is not None else 0

    async def take_list(self) -> bytes | bytearray:
        """The list that has begun, undecoded; nothing is read behind it until `list_over`.

        Raises asyncio.CancelledError when the link ends first, or has ended.
        """
        taken: asyncio.Future[bytes | bytearray] = self._loop.create_future()
        self._list = taken
        self._is_judged = True
        self.piece_bytes = SCRATCH_BYTES
        if self.closed.done():  # and nobody else would tell it
            taken.cancel()
        self.go_on(_LIST)
        return await taken

    def leave_out_list(self) -> None:
        """Drops the list that has begun, as it comes, and reads on behind it."""
        self._decoder.skip()
        self.go_on(_LIST)

    def list_over(self) -> None:
        """Reads on behind the list that was taken."""
        self.go_on(_LIST)

    # --- what comes from the node ---------------------------------------------------------

    def next_command(self) -> bytes | bytearray | None:
        if not self._is_judged:
            begun = self._decoder.begun(_HEAD_BYTES)
            if begun is None:
                return None
            total, head = begun
            is_list = head[0] == _TYPE_TAG and head[1] in LISTS
            if total > (LIST_FRAME_BYTES_MAX if is_list else FRAME_BYTES_MAX):
                raise FrameError(f"a frame of {total} bytes is too large, list: {is_list}")
            if is_list:
                self.hold(_LIST)
                self._owner.list_begins(self, head[1], total)
                return None
            self._is_judged = True
        data = super().next_command()
        self._is_judged = data is None
        return data

    def arrived(self, data: bytes | bytearray) -> None:
        taken, self._list = self._list, None
        if taken is None:
            super().arrived(data)
            return
        self.piece_bytes = PIECE_BYTES_MAX
        self.hold(_LIST)
        if not taken.done():
            taken.set_result(data)

    def received(self, command: BaseCommand) -> None:
        # Also where nobody waits any more: a late answer to the proxy is no client's.
        is_own = OWN_IDS <= commands.request_id_of(command) < commands.NO_REQUEST
        if is_own or not self.welcomed.done() or command.type == BaseCommand.AUTH_CHALLENGE:
            super().received(command)  # a challenge is about what the proxy itself has shown
        elif command.type == BaseCommand.ERROR and command.error.request_id == commands.NO_REQUEST:
            self.farewell = command.error
            self.close(f"the node ends it: {command.error.message}")
        elif not commands.lacking(command):
            self._owner.answered(self, command)

    def _ends_by(self, why: str) -> None:
        super()._ends_by(why)
        # Not only once its bytes are out: by then another link may have its place.
        self._owner.link_ended(self, why)

    def ended(self, reason: str) -> None:
        super().ended(reason)
        if self._list is not None:
            self._list.cancel()
        self._owner.link_ended(self, reason)


class _Pieces(SharedReads):
    """Reads no more at once than the link allows."""

    def __init__(self, link: NodeLink) -> None:
        super().__init__(link)
        self._link = link

    def get_buffer(self, sizehint: int) -> memoryview:
        return super().get_buffer(sizehint)[: self._link.piece_bytes]
