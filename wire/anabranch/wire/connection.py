"""One connection of the binary protocol, as either side sees it.

Its use:

- A node makes a `WireServer(open_session, ...)`. `open_session(peer)` returns the routes of each
  client that has said CONNECT: command type -> coroutine function that takes the BaseCommand.
  Commands begin in the order in which they came and run side by side, so order matters
  only before a route's first `await`. At most `ConnectionLimits.requests_max` of a connection run;
  then nothing more is read from it. A route answers with `peer.send(...)`. A RefusedError that it
  raises becomes the CommandError for its request. `peer.closed` is done once the client is gone;
  routes that still run are cancelled then.
- A client calls `await client.connect(host, port, on_push=...)`, then
  `await connection.request(pb.CommandLookupTopic(topic=...), timeout_s)`. The connection chooses
  the request id. Commands that no request asked for go to `on_push`, in order.
- Both sides send messages bare, like `pb.CommandSuccess(request_id=7)`; the envelope comes by
  itself.

`send` never waits. The connection keeps the bytes that the other side has not taken yet, up to
`unsent_bytes_max` of the `ConnectionLimits`. A frame may be larger only for a side that had taken
nearly all before. A side that takes next to nothing in `unread_s_max`, or lets more than that pile
up, is disconnected. A sender of much, or of only the newest, awaits `drained()` first. `taken()`
tells afterwards that the sent bytes are out of memory.

The progress of the other side is known to the byte: the written bytes, less those that the
transport still has. `_look` compares that with everything that is waited for. It places the
transport's low-water mark so that `resume_writing` comes at the next place of interest, and only
for that.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final, NamedTuple, cast

import msgspec
from google.protobuf.message import Message

from anabranch.core.strangers import AccountLimits, PortRefusal
from anabranch.wire import commands
from anabranch.wire.anabranch_pb2 import BaseCommand, CommandPing, CommandPong
from anabranch.wire.errors import FrameError, FrameSizeError
from anabranch.wire.framing import (
    FRAME_BYTES_MAX,
    LIST_FRAME_BYTES_MAX,
    FrameDecoder,
    encode_frame,
)
from anabranch.wire.logging import get_logger

PROTOCOL_VERSION: Final = 21  # the newest that Pulsar's protocol has
_HIGH_WATER_BYTES: Final = 256 * 1024
_LOW_WATER_BYTES: Final = _HIGH_WATER_BYTES // 4
_TAKEN_BYTES_MIN: Final = 1024 * 1024  # in `unread_s_max`, by a side that reads at all
_PING_TYPE: Final = BaseCommand.PING
_PONG_TYPE: Final = BaseCommand.PONG
_PING: Final = commands.envelope(CommandPing())
_PONG: Final = commands.envelope(CommandPong())
_EVENTS: Final = {
    PortRefusal.FRAME_SIZE: "wire.garbage",
    PortRefusal.MALFORMED: "wire.garbage",
    PortRefusal.FRAME_TIME: "wire.unfinished",
    PortRefusal.SILENT: "wire.silent",
    PortRefusal.NOT_READ: "wire.not_read",
}


class ConnectionLimits(msgspec.Struct, frozen=True):
    """The resources that a connection may use up. Times are in seconds."""

    frame_bytes_max: int = FRAME_BYTES_MAX  # for sent frames, except lists
    list_bytes_max: int = LIST_FRAME_BYTES_MAX  # for lists that a node sends and a client accepts
    received_frame_bytes_max: int = FRAME_BYTES_MAX
    unsent_bytes_max: int = 2 * FRAME_BYTES_MAX
    unread_s_max: float = 10.0
    keep_alive_s: float = 30.0  # silence before a PING, and again before giving up
    handshake_s_max: float = 10.0
    requests_max: int = 1_000  # under way at once
    frame_s_max: float = 30.0  # from its first byte to its last
    # For nodes only.
    idle_s_max: float = 0.0  # nothing asked, and nothing watched; 0: for ever
    account: AccountLimits = AccountLimits()


DEFAULT_LIMITS: Final = ConnectionLimits()


class _Mark(NamedTuple):
    """A place in the written bytes, with the future of those who wait until the other side has
    taken it.
    """

    position: int
    taken: asyncio.Future[bool]


class Connection(asyncio.Protocol):
    """The common part of both sides: frames in and out, keep-alive, one end with one reason."""

    def __init__(
        self,
        limits: ConnectionLimits = DEFAULT_LIMITS,
        accepted_bytes_max: int = 0,
    ) -> None:
        self.limits = limits
        self.address = "?"  # host:port of the other side
        self.host = "?"
        self.is_open = False  # True while sending makes sense: from its beginning to its end
        self._loop = asyncio.get_running_loop()
        # Says why it ended. Wait with asyncio.wait, or shield it: it is everybody's.
        self.closed: asyncio.Future[str] = self._loop.create_future()
        self._logger = get_logger(__name__)
        self._decoder = FrameDecoder(max(accepted_bytes_max, limits.received_frame_bytes_max))
        self._transport: asyncio.Transport | None = None
        self._reason = ""  # once the end has been decided
        self._heard = True
        self._pinged = False
        self._holds: set[object] = set()  # why it reads nothing more for now
        self._written = 0  # bytes, since the beginning
        self._marks: deque[_Mark] = deque()
        self._water_marks = (_LOW_WATER_BYTES, _HIGH_WATER_BYTES)  # those of the transport
        self._drained = asyncio.Event()
        self._drained.set()
        self._alarm: asyncio.TimerHandle | None = None
        self._frame_alarm: asyncio.TimerHandle | None = None
        self._frames = 0  # those that were there whole
        self._stalled: asyncio.TimerHandle | None = None

    # --- for users ----------------------------------------------------------------------

    def send(self, message: Message) -> None:
        """Sends one Command... message. It does nothing once the connection is over.

        Raises FrameError if the message is larger than a frame may be.
        """
        self.send_command(commands.envelope(message))

    def send_command(self, command: BaseCommand) -> None:
        """Sends a command in its envelope, as `send` does."""
        if self.is_open:
            self.send_frame(encode_frame(command.SerializeToString(), self.limits.frame_bytes_max))

    async def drained(self) -> None:
        """Returns once the other side has taken nearly all that was sent, or is gone."""
        await self._drained.wait()

    @property
    def is_drained(self) -> bool:
        """Returns True once the other side has taken nearly all that was sent, or is gone."""
        return self._drained.is_set()

    def send_frame(self, frame: bytes) -> None:
        """Sends the result of `encode_frame`. It does nothing once the connection is over."""
        if not self.is_open or self._transport is None:
            return
        size = len(frame)
        unsent = self._transport.get_write_buffer_size()
        # A larger frame may be sent alone to a side that has not much left to take.
        if unsent > _LOW_WATER_BYTES and unsent + size > self.limits.unsent_bytes_max:
            self._does_not_read()
            return
        self._written += size
        self._transport.write(frame)
        if unsent + size <= _LOW_WATER_BYTES and self._stalled is None and not self._marks:
            self.looked(unsent + size)  # no one waits for anything: nothing has changed
        else:
            self._look()

    def taken(self) -> asyncio.Future[bool]:
        """Returns a future that is True when all that was sent until now has left this process.

        False means that the connection is gone, with the rest of it. A side that takes too little
        of it in `unread_s_max` is disconnected. Shield the future, because it goes on for others
        when a waiter is cancelled.
        """
        future: asyncio.Future[bool] = self._loop.create_future()
        if self._transport is None or not self._transport.get_write_buffer_size():
            future.set_result(self.is_open)
        else:
            self._marks.append(_Mark(self._written, future))
            self._look()
        return future

    def close(self, why: str) -> None:
        """Ends the connection once all sent bytes are out, in any case after a while."""
        if not self.is_open or self._transport is None:
            return
        self._ends_by(why)
        self._stalled = self._stalled or self._loop.call_later(
            self.limits.unread_s_max, self._transport.abort
        )
        self._transport.close()

    def abort(self, why: str) -> None:
        """Ends the connection at once, also one that is closing.
        Bytes that were not taken yet are lost.
        """
        if self._transport is None:
            return
        if self.is_open:
            self._ends_by(why)
        self._transport.abort()

    # --- for the two sides --------------------------------------------------------------

    def received(self, command: BaseCommand) -> None:
        """Takes the next command that is no part of the keep-alive. May raise FrameError."""
        raise NotImplementedError

    def next_command(self) -> bytes | bytearray | None:
        """Returns the next whole command that has arrived.
        None means to wait for more, or for `go_on`.
        """
        return self._decoder.next_command()

    def arrived(self, data: bytes | bytearray) -> None:
        """Takes a whole command in its bytes. May raise FrameError."""
        command = commands.parse(data)
        kind = command.type  # CONNECT's if it is unknown
        if kind == _PING_TYPE:
            if self.pinged():
                self.send_command(_PONG)
        elif kind != _PONG_TYPE:  # the coming of a PONG is all that counts
            self.received(command)

    def pinged(self) -> bool:
        """Returns True if a PING that has come is to be answered."""
        return True

    def ended(self, reason: str) -> None:
        """Takes leave. It is called once, when the connection is gone."""

    def give_up(self, refusal: PortRefusal, reason: str) -> None:
        """Ends the connection because the other side does not do its part."""
        self._logger.warning(_EVENTS.get(refusal, "wire.given_up"), why=reason)
        self.abort(reason)

    def looked(self, unsent: int) -> None:
        """Notes that at most so many bytes are not taken yet. Fewer may be soon."""

    def hold(self, why: object = None) -> None:
        """Takes no more commands until `go_on` for the same reason."""
        if self._transport is not None:
            is_first = not self._holds
            self._holds.add(why)
            if is_first:
                self._transport.pause_reading()

    def go_on(self, why: object = None) -> None:
        """Takes commands again unless something else holds it, first those that had arrived."""
        if why not in self._holds or self._transport is None:
            return
        self._holds.remove(why)
        if not self._holds:
            self._take_commands()
            if not self._holds and self.is_open:
                self._transport.resume_reading()
                self._watch_frame()

    # --- asyncio.Protocol ---------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # No subclass in uvloop, which has the methods all the same.
        self._transport = stream = cast(asyncio.Transport, transport)
        self.is_open = True
        stream.set_write_buffer_limits(high=_HIGH_WATER_BYTES, low=_LOW_WATER_BYTES)
        name = transport.get_extra_info("peername")
        if name:
            self.host, self.address = name[0], f"{name[0]}:{name[1]}"
        self._logger = self._logger.bind(peer=self.address)
        self._alarm = self._loop.call_later(self.limits.keep_alive_s, self._keep_alive)

    def data_received(self, data: bytes) -> None:
        self._heard = True
        if self.is_open:
            self._decoder.feed(data)
            self._take_commands()
            self._watch_frame()

    def eof_received(self) -> bool:
        try:
            self._decoder.end()
        except FrameError as error:
            self._ends_by(self._reason or str(error))
        return False  # the transport closes itself

    def resume_writing(self) -> None:
        self._look()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._reason:
            self._reason = f"{type(exc).__name__}: {exc}" if exc else "closed by the other side"
        self.is_open = False
        self._transport = None
        for timer in (self._alarm, self._frame_alarm, self._stalled):
            if timer is not None:
                timer.cancel()
        self._drained.set()
        while self._marks:
            self._pass(self._marks.popleft(), False)
        if not self.closed.done():
            self.closed.set_result(self._reason)
        self.ended(self._reason)

    # --- inside -------------------------------------------------------------------------

    def _ends_by(self, why: str) -> None:
        self._reason = why
        self.is_open = False

    def _look(self) -> None:
        """Looks at the progress of the other side, and plans the next look."""
        if self._transport is None:
            return
        unsent = self._transport.get_write_buffer_size()
        if unsent > _HIGH_WATER_BYTES:
            self._drained.clear()
        elif unsent <= _LOW_WATER_BYTES:
            self._drained.set()
        while self._marks and self._marks[0].position <= self._written - unsent:
            self._pass(self._marks.popleft(), True)
        if self._marks or not self._drained.is_set():
            self._watch_reader(unsent)
        elif self._stalled is not None and self.is_open:
            self._stalled.cancel()
            self._stalled = None
        self._wake_at(self._transport)
        self.looked(unsent)

    def _watch_reader(self, unsent: int) -> None:
        """Disconnects a side that takes too little of the awaited bytes in time."""
        if self._stalled is None:
            taken = self._written - unsent
            due = min(self._written, taken + _TAKEN_BYTES_MIN)
            self._stalled = self._loop.call_later(self.limits.unread_s_max, self._reader_due, due)

    def _reader_due(self, due: int) -> None:
        self._stalled = None
        if self._transport is None:
            return
        unsent = self._transport.get_write_buffer_size()
        if self._written - unsent < due:
            self._does_not_read()
        else:
            self._watch_reader(unsent)
            self._look()

    def _wake_at(self, transport: asyncio.Transport) -> None:
        """Places the mark at which `resume_writing` comes: the next place that anybody
        waits for.
        """
        due = [] if self._drained.is_set() else [_LOW_WATER_BYTES]
        if self._marks:
            due.append(self._written - self._marks[0].position)
        low = max(due, default=_LOW_WATER_BYTES)
        high = low if due else _HIGH_WATER_BYTES
        if (low, high) != self._water_marks:
            self._water_marks = (low, high)
            transport.set_write_buffer_limits(high=high, low=low)

    def _pass(self, mark: _Mark, taken: bool) -> None:
        if not mark.taken.done():
            mark.taken.set_result(taken)

    def _take_commands(self) -> None:
        try:
            while not self._holds and self.is_open:
                data = self.next_command()
                if data is None:
                    return
                self._frames += 1
                self.arrived(data)
        except FrameError as error:
            is_too_large = isinstance(error, FrameSizeError)
            self.give_up(
                PortRefusal.FRAME_SIZE if is_too_large else PortRefusal.MALFORMED, str(error)
            )

    def _watch_frame(self) -> None:
        """Disconnects a side that does not finish a frame in time."""
        if self._frame_alarm is None and self._decoder.unfinished_bytes and not self._holds:
            self._frame_alarm = self._loop.call_later(
                self.limits.frame_s_max, self._frame_due, self._frames
            )

    def _frame_due(self, frames: int) -> None:
        self._frame_alarm = None
        unfinished = self._decoder.unfinished_bytes
        if not unfinished or not self.is_open:
            return
        if self._frames == frames and not self._holds:
            self.give_up(
                PortRefusal.FRAME_TIME,
                f"a frame was not there whole within {self.limits.frame_s_max:g} s, after "
                f"{unfinished} bytes of it",
            )
        else:  # another one since, so later
            self._watch_frame()

    def _keep_alive(self) -> None:
        if self._heard or self._holds:
            self._heard = self._pinged = False
        elif self._pinged:
            reason = f"no answer to a PING within {self.limits.keep_alive_s:g} s"
            self.give_up(PortRefusal.SILENT, reason)
            return
        else:
            self._pinged = True
            self.send_command(_PING)
        self._alarm = self._loop.call_later(self.limits.keep_alive_s, self._keep_alive)

    def _does_not_read(self) -> None:
        if self._transport is None:
            return
        unsent = self._transport.get_write_buffer_size()
        if self.is_open:
            reason = f"the other side does not read: {unsent} bytes wait for it"
            self.give_up(PortRefusal.NOT_READ, reason)
        else:
            self._transport.abort()
