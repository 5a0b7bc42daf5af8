"""Frames: four bytes of total size, four bytes of command size, the command; big endian.

The total counts everything after itself. Some foreign commands carry a payload behind the command.
The decoder skips it, so that their refusal does not cost the connection.
"""

from __future__ import annotations

import struct
from typing import Final

from anabranch.wire.errors import FrameError, FrameSizeError

FRAME_BYTES_MAX: Final = 5 * 1024 * 1024  # after the first four bytes
_LARGE_BYTES: Final = 64 * 1024  # not copied twice
LIST_FRAME_BYTES_MAX: Final = 64 * 1024 * 1024  # for a list of topics, which only nodes send
_SIZE: Final = struct.Struct(">I")
_SIZES: Final = struct.Struct(">II")


def encode_frame(command: bytes | bytearray, frame_bytes_max: int = FRAME_BYTES_MAX) -> bytes:
    """Returns the command as a frame. Raises FrameError if it is larger than a frame may be."""
    total = _SIZE.size + len(command)
    if total > frame_bytes_max:
        raise FrameError(f"a command of {len(command)} bytes: a frame holds {frame_bytes_max}")
    return _SIZES.pack(total, len(command)) + command


class FrameDecoder:
    """Cuts a stream of bytes into commands, for any division of the stream.

    It keeps no more than one unfinished frame and the last chunk that was fed. After a FrameError
    the stream has lost its place, and nothing more can be read from it.
    """

    def __init__(self, frame_bytes_max: int = FRAME_BYTES_MAX) -> None:
        self.frame_bytes_max = frame_bytes_max  # for frames that begin from now on
        # The last chunk that was fed, unchanged if nothing was left of the one before.
        self._buffer: bytes | bytearray = b""
        self._position = 0  # the first byte that was not returned yet
        self._skipped = 0  # bytes that are still to come and nobody wants

    def feed(self, data: bytes) -> None:
        """Takes the next bytes. Call `next_command` until it returns None before you feed more."""
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
        """Returns the total of the frame that has begun, and the first `count` bytes of its
        command.

        Returns None while they are not there.
        """
        start = self._position + _SIZES.size
        if len(self._buffer) < start + count:
            return None
        (total,) = _SIZE.unpack_from(self._buffer, self._position)
        return total, bytes(self._buffer[start : start + count])

    def skip(self) -> None:
        """Skips the frame that has begun, complete or not."""
        (total,) = _SIZE.unpack_from(self._buffer, self._position)
        end = self._position + _SIZE.size + total
        self._skipped = max(0, end - len(self._buffer))
        self._position = min(end, len(self._buffer))
        self._let_go()

    @property
    def unfinished_bytes(self) -> int:
        """The number of fed bytes that were not returned yet."""
        return len(self._buffer) - self._position

    def next_command(self) -> bytes | bytearray | None:
        """Returns the next whole command, None if it needs more bytes. Raises FrameError."""
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
        self._position = end = position + _SIZE.size + total
        if total < _LARGE_BYTES:
            return self._returned(bytes(buffer[start : start + size]))
        if isinstance(buffer, bytearray):  # what is behind is less than the large command
            behind = bytes(buffer[end:])
            del buffer[start + size :], buffer[:start]
            self._buffer, self._position = behind, 0
            return buffer
        with memoryview(buffer) as view:
            command = bytes(view[start : start + size])
        return self._returned(command)

    def end(self) -> None:
        """Notes that the stream is over. Raises FrameError if it ends within a frame."""
        left = self.unfinished_bytes
        if left:
            raise FrameError(f"the stream ends within a frame, after {left} bytes of it")

    def _returned(self, command: bytes) -> bytes:
        self._let_go()
        return command

    def _let_go(self) -> None:
        """Drops the buffer once all of it was returned."""
        if self._position == len(self._buffer):
            self._buffer, self._position = b"", 0

    def _check_total(self, left: int) -> None:
        """Checks the size of a frame of which only the total may be there. Raises FrameError."""
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
