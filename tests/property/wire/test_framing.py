"""Frames: whatever the cuts and whatever the bytes."""

from __future__ import annotations

import contextlib
import itertools
import struct
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.wire import commands
from anabranch.wire.errors import FrameError
from anabranch.wire.framing import FrameDecoder, encode_frame

_MAX = 64
_COMMANDS = st.lists(st.binary(max_size=_MAX - 4), max_size=8)


def _cut(stream: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    return [stream[a:b] for a, b in itertools.pairwise(edges)]


def _decode(decoder: FrameDecoder, chunks: list[bytes]) -> list[bytes | bytearray]:
    found: list[bytes | bytearray] = []
    for chunk in chunks:
        decoder.feed(chunk)
        while (command := decoder.next_command()) is not None:
            found.append(command)
    return found


@given(_COMMANDS, st.lists(st.integers(0, 600), max_size=20))
def test_any_cut_of_the_stream_gives_the_same_commands(sent: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(encode_frame(command, _MAX) for command in sent)
    decoder = FrameDecoder(_MAX)
    assert _decode(decoder, _cut(stream, cuts)) == sent
    decoder.end()


@given(_COMMANDS, st.binary(min_size=1, max_size=_MAX), st.integers(1, 30))
def test_a_payload_behind_a_command_is_skipped(
    sent: list[bytes], payload: bytes, chunk: int
) -> None:
    stream = b"".join(
        struct.pack(">II", 4 + len(command) + len(payload), len(command)) + command + payload
        for command in sent
    )
    chunks = [stream[i : i + chunk] for i in range(0, len(stream), chunk)]
    assert _decode(FrameDecoder(2 * _MAX), chunks) == sent


@given(_COMMANDS, st.integers(1, 600))
def test_a_stream_that_ends_within_a_frame_is_noticed(sent: list[bytes], missing: int) -> None:
    frames = [encode_frame(command, _MAX) for command in [*sent, b"last"]]
    kept = frames[-1][: max(1, len(frames[-1]) - missing)]
    decoder = FrameDecoder(_MAX)
    assert _decode(decoder, [b"".join(frames[:-1]) + kept]) == sent
    with pytest.raises(FrameError, match="ends within a frame"):
        decoder.end()


@given(_COMMANDS, st.integers(_MAX + 1, 2**32 - 1) | st.integers(0, 3))
def test_a_size_out_of_bounds_is_refused_after_what_came_before(
    sent: list[bytes], total: int
) -> None:
    decoder = FrameDecoder(_MAX)
    decoder.feed(b"".join(encode_frame(command, _MAX) for command in sent))
    decoder.feed(struct.pack(">I", total))
    assert [decoder.next_command() for _ in sent] == sent
    with pytest.raises(FrameError):
        decoder.next_command()


@given(st.binary(max_size=400), st.integers(1, 50))
def test_garbage_ends_in_a_frame_error_or_in_commands_and_nothing_else(
    data: bytes, chunk: int
) -> None:
    decoder = FrameDecoder(_MAX)
    with contextlib.suppress(FrameError):
        _decode(decoder, [data[start : start + chunk] for start in range(0, len(data), chunk)])


@given(st.binary(max_size=200))
def test_any_command_that_can_be_parsed_has_a_type_and_an_answer(data: bytes) -> None:
    with contextlib.suppress(FrameError):
        parsed = commands.parse(data)
        assert commands.type_of(parsed) != 0
        assert commands.name_of(commands.type_of(parsed))
        assert 0 <= commands.request_id_of(parsed) <= commands.NO_REQUEST
        commands.lacking(parsed)


def test_a_command_that_fits_no_frame_is_refused() -> None:
    with pytest.raises(FrameError, match="a frame holds 64"):
        encode_frame(b"x" * 61, _MAX)


@given(_COMMANDS.filter(bool), st.lists(st.integers(0, 600), max_size=20), st.data())
def test_a_frame_that_is_left_out_takes_nothing_else_with_it(
    sent: list[bytes], cuts: list[int], data: st.DataObject
) -> None:
    unwanted = data.draw(st.integers(0, len(sent) - 1))
    stream = b"".join(encode_frame(command, _MAX) for command in sent)
    decoder = FrameDecoder(_MAX)
    found: list[bytes | bytearray] = []
    count = 0
    for chunk in _cut(stream, cuts):
        decoder.feed(chunk)
        while True:
            if count == unwanted and decoder.begun(0) is not None:
                decoder.skip()
                count += 1
            command = decoder.next_command()
            if command is None:
                break
            found.append(command)
            count += 1
    assert found == sent[:unwanted] + sent[unwanted + 1 :]
    decoder.end()


_LARGE = 64 * 1024  # from here on a command is not copied


@given(
    st.lists(st.tuples(st.integers(0, 3 * _LARGE), st.integers(0, 9)), max_size=4),
    st.lists(st.integers(0, 12 * _LARGE), max_size=12),
)
def test_large_commands_come_whole(sizes: list[tuple[int, int]], cuts: list[int]) -> None:
    sent = [bytes(number % 251 for number in range(size)) for size, _ in sizes]
    stream = b"".join(
        struct.pack(">II", 4 + len(command) + behind, len(command)) + command + b"x" * behind
        for command, (_, behind) in zip(sent, sizes, strict=True)
    )
    decoder = FrameDecoder(4 * _LARGE)
    assert (_decode(decoder, _cut(stream, cuts)), decoder.unfinished_bytes) == (sent, 0)
    decoder.end()


def test_a_large_command_is_held_once_whatever_comes_behind_it() -> None:
    size = 16 * _LARGE
    stream = encode_frame(b"x" * size, 2 * size) + encode_frame(b"next", 2 * size)
    decoder = FrameDecoder(2 * size)
    tracemalloc.start()
    try:
        decoder.feed(stream[:9])
        decoder.feed(stream[9:])
        command = decoder.next_command()
        held = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert command is not None
    assert len(command) == size
    assert held < 1.5 * size
    assert decoder.next_command() == b"next"
