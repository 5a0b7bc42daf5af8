"""Frames: four bytes of total size, four bytes of command size, the command; big endian.

The total counts everything after itself. Some foreign commands carry a payload behind the command;
it is skipped, so that their refusal does not cost the connection.
"""

from __future__ import annotations

import struct
from typing import Final

from anabranch.wire.errors import FrameError, FrameSizeError

FRAME_BYTES_MAX: Final = 5 * 1024 * 1024  # after the first four bytes
_LARGE_BYTES: Final = 64 * 1024  # not copied twice
LIST_FRAME_BYTES_MAX: Final = 64 * 1024 * 1024  # of a list of topics, which only nodes send
_SIZE: Final = struct.Struct(">I")
_SIZES: Final = struct.Struct(">II")
_NO_ROOM: Final = memoryview(b"")


def encode_frame(command: bytes | bytearray, frame_bytes_max: int = FRAME_BYTES_MAX) -> bytes:
    """The command as a frame. Raises FrameError when it is larger than a frame may be."""
    total = _SIZE.size + len(command)
    if total > frame_bytes_max:
        raise FrameError(f"a command of {len(command)} bytes: a frame holds {frame_bytes_max}")
    return _SIZES.pack(total, len(command)) + command


class FrameDecoder:
    """Cuts a stream of bytes into commands, however the stream arrives.

    It keeps no more than one unfinished frame and the last chunk that was fed. After a FrameError
    the stream has lost its place, and nothing more can be read from it.

    `reserves`: what a large command needs is taken when it begins, by what its head says, so that
    it is copied once at most, and never moved as it grows. Only for streams of who may be believed.
    """

    def __init__(self, frame_bytes_max: int = FRAME_BYTES_MAX, *, reserves: bool = False) -> None:
        self.frame_bytes_max = frame_bytes_max  # of the frames that begin from now on
        self._reserves = reserves
        self._large: bytearray | None = None  # a command, of which `_filled` bytes have come
        self._filled = 0
        # What was fed last, as it came, where nothing was left of what came before.
        self._buffer: bytes | bytearray = b""
        self._position = 0  # of the first byte that was not returned yet
        self._skipped = 0  # bytes that are still to come and nobody wants

    def feed(self, data: bytes) -> None:
        """Takes the next bytes; call `next_command` until it returns None before feeding more."""
        if self._large is not None:
            missing = len(self._large) - self._filled
            taken = data[:missing]
            self._large[self._filled : self._filled + len(taken)] = taken
            self._filled += len(taken)
            data = data[missing:]
        if self._skipped:
            left_out = min(self._skipped, len(data))
            self._skipped -= left_out
            data = data[left_out:]
        if self._position == len(self._buffer):
            self._buffer, self._position = data, 0
            return
        if not isinstance(self._buffer, bytearray):
            self._buffer = bytearray(self._buffer[self._position :])
        elif self._position:
            del self._buffer[: self._position]
        self._position = 0
        self._buffer += data

    def begun(self, count: int) -> tuple[int, bytes] | None:
        """The total of the frame that has begun, and the first `count` bytes of its command.

        None while they are not there.
        """
        start = self._position + _SIZES.size
        if len(self._buffer) < start + count:
            return None
        (total,) = _SIZE.unpack_from(self._buffer, self._position)
        return total, bytes(self._buffer[start : start + count])

    def skip(self) -> None:
        """Leaves out the frame that has begun, whether or not all of it is there."""
        (total,) = _SIZE.unpack_from(self._buffer, self._position)
        end = self._position + _SIZE.size + total
        self._skipped = max(0, end - len(self._buffer))
        self._position = min(end, len(self._buffer))
        self._let_go()

    @property
    def skipped_bytes(self) -> int:
        """How many are still to come that are left out."""
        return self._skipped

    @property
    def unfinished_bytes(self) -> int:
        """Of what was fed, how much was not returned yet."""
        return self._filled + len(self._buffer) - self._position

    @property
    def room(self) -> memoryview:
        """Where the next bytes of a large command belong; empty if none has begun."""
        return memoryview(self._large)[self._filled :] if self._large is not None else _NO_ROOM

    def fed(self, count: int) -> None:
        """So many bytes were written to `room`, instead of being fed."""
        self._filled += count

    def next_command(self) -> bytes | bytearray | None:
        """The next whole command; None when more bytes are needed. Raises FrameError."""
        if self._large is not None:
            return self._whole_large()
        buffer, position = self._buffer, self._position
        left = len(buffer) - position
        if left < _SIZES.size:
            self._check_total(left)
            return None
        total, size = _SIZES.unpack_from(buffer, position)
        if not _SIZE.size <= total <= self.frame_bytes_max:
            raise self._no_frame(total)
        if size > total - _SIZE.size:
            raise FrameError(f"a frame of {total} bytes that says its command has {size}")
        if left < _SIZE.size + total:
            if self._reserves and size >= _LARGE_BYTES and left - _SIZES.size < size:
                self._reserve(total, size)
            return None
        start = position + _SIZES.size
        self._position = position + _SIZE.size + total
        if total < _LARGE_BYTES:
            return self._returned(bytes(buffer[start : start + size]))
        with memoryview(buffer) as view:
            command = bytes(view[start : start + size])
        return self._returned(command)

    def end(self) -> None:
        """The stream is over. Raises FrameError when it ends within a frame."""
        left = self.unfinished_bytes
        if left:
            raise FrameError(f"the stream ends within a frame, after {left} bytes of it")

    def _returned(self, command: bytes) -> bytes:
        self._let_go()
        return command

    def _let_go(self) -> None:
        """Keeps nothing of what was returned, once it was all."""
        if self._position == len(self._buffer):
            self._buffer, self._position = b"", 0

    def _reserve(self, total: int, size: int) -> None:
        """Takes the memory of a command that has begun, and puts there what has come of it."""
        with memoryview(self._buffer) as view:
            come = view[self._position + _SIZES.size :]
            self._large = bytearray(size)
            self._large[: len(come)] = come
            self._filled = len(come)
            come.release()
        self._skipped = total - _SIZE.size - size  # what stands behind it
        self._buffer, self._position = b"", 0

    def _whole_large(self) -> bytearray | None:
        large = self._large
        if large is None or self._filled < len(large):
            return None
        self._large, self._filled = None, 0
        return large

    def _check_total(self, left: int) -> None:
        """Of a frame of which no more than its total may be there. Raises FrameError."""
        if left >= _SIZE.size:
            (total,) = _SIZE.unpack_from(self._buffer, self._position)
            if not _SIZE.size <= total <= self.frame_bytes_max:
                raise self._no_frame(total)

    def _no_frame(self, total: int) -> FrameError:
        begins = bytes(self._buffer[self._position : self._position + _SIZE.size])
        if begins.isascii() and begins.strip().isalpha():
            return FrameError(
                f"not this protocol: it begins with {begins.decode()!r}, as HTTP does"
            )
        reason = f"a frame of {total} bytes: it must have 4 to {self.frame_bytes_max}"
        return FrameError(reason) if total < _SIZE.size else FrameSizeError(reason)
