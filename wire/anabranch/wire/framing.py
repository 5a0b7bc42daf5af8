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


def encode_frame(command: bytes, frame_bytes_max: int = FRAME_BYTES_MAX) -> bytes:
    """The command as a frame. Raises FrameError when it is larger than a frame may be."""
    total = _SIZE.size + len(command)
    if total > frame_bytes_max:
        raise FrameError(f"a command of {len(command)} bytes: a frame holds {frame_bytes_max}")
    return _SIZES.pack(total, len(command)) + command


class FrameDecoder:
    """Cuts a stream of bytes into commands, however the stream arrives.

    It keeps no more than one unfinished frame and the last chunk that was fed. After a FrameError
    the stream has lost its place, and nothing more can be read from it.
    """

    def __init__(self, frame_bytes_max: int = FRAME_BYTES_MAX) -> None:
        self.frame_bytes_max = frame_bytes_max  # of the frames that begin from now on
        # What was fed last, as it came, where nothing was left of what came before.
        self._buffer: bytes | bytearray = b""
        self._position = 0  # of the first byte that was not returned yet
        self._skipped = 0  # bytes that are still to come and nobody wants

    def feed(self, data: bytes) -> None:
        """Takes the next bytes; call `next_command` until it returns None before feeding more."""
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

    def beginning(self, count: int) -> bytes:
        """At most the first `count` bytes of the command that has begun, as far as they came."""
        start = self._position + _SIZES.size
        return bytes(self._buffer[start : start + count])

    def skip(self) -> None:
        """Leaves out the frame that has begun, whether or not all of it is there."""
        (total,) = _SIZE.unpack_from(self._buffer, self._position)
        end = self._position + _SIZE.size + total
        self._skipped = max(0, end - len(self._buffer))
        self._position = min(end, len(self._buffer))

    @property
    def unfinished_bytes(self) -> int:
        """Of what was fed, how much was not returned yet."""
        return len(self._buffer) - self._position

    def next_command(self) -> bytes | None:
        """The next whole command; None when more bytes are needed. Raises FrameError."""
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
            return None
        start = position + _SIZES.size
        self._position = position + _SIZE.size + total
        if total < _LARGE_BYTES:
            return bytes(buffer[start : start + size])
        with memoryview(buffer) as view:
            command = bytes(view[start : start + size])
        if self._position == len(buffer):  # a large frame's memory is not kept for the next
            self._buffer, self._position = b"", 0
        return command

    def end(self) -> None:
        """The stream is over. Raises FrameError when it ends within a frame."""
        left = len(self._buffer) - self._position
        if left:
            raise FrameError(f"the stream ends within a frame, after {left} bytes of it")

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
