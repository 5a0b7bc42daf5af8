"""What clients' longest commands take of a node's memory and of its event loop's time.

Memory is compared with what a node charges for it. Each shape is parsed many times over in a
process of its own, which tells by how much it has grown: no tool of Python's sees what the parser
takes.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import time
from pathlib import Path
from typing import Final

from anabranch.wire import commands, entries
from anabranch.wire.anabranch_pb2 import BaseCommand
from anabranch.wire.errors import ExcessError, FrameError
from anabranch.wire.server.refusals import unsound
from anabranch.wire.varint import nested, varint
from bench.figure import Measured
from bench.place import Place

_CHARGED_BYTES: Final = 64 << 20  # for all commands of a shape together
_REPEATS: Final = 20
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
_ID: Final = b"\x08\x01"
_UNKNOWN: Final = b"\x78\x00"
_MANY: Final = entries.ENTRIES_MAX
_LOOKUP: Final = b"\x0a\x01t\x10\x01"
_SUBSCRIBE: Final = b"\x08\x01\x12\x01t\x1a\x01s\x22\x01c\x28\x01\x30\x00"
_REPORT: Final = b"\x08\x01\x10\x01"
_TRAFFIC: Final = b"\x08\x01\x12\x01t\x18\x01\x20\x01\x28\x01"


def memory(place: Place) -> Measured:
    """The shape that takes most of what is charged for it."""
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        shares = dict(zip(_shapes(), pool.map(_share, _shapes(), chunksize=1), strict=True))
    most = max(shares.values())
    return Measured(most, "of what is charged", most, 1.0, details=shares)


def blocking(place: Place) -> Measured:
    """The command that stops the loop for longest, until its right is asked or it is refused."""
    found = {name: _blocked_ms(data) for name, data in (_shapes() | _floods()).items()}
    most = max(found.values())
    return Measured(most, "ms", most, 5.0, details=found)


def _blocked_ms(data: bytes) -> float:
    """The shortest of several times, of the processor: the machine may have others to serve."""
    times = []
    for _ in range(_REPEATS):
        began = time.thread_time()
        try:
            entries.check(data)
        except ExcessError as error:
            with contextlib.suppress(FrameError):  # of groups that do not end
                commands.parse(error.head)
        else:
            command = commands.parse(data)
            unsound(command)
            entries.memory_of(command, len(data))
        times.append(1_000 * (time.thread_time() - began))
    return min(times)


def _floods() -> dict[str, bytes]:
    """What is refused, 4 MB of it each."""
    subscribe, report = BaseCommand.SCALABLE_TOPIC_SUBSCRIBE, BaseCommand.SCALABLE_CONSUMER_REPORT
    return {
        "a flood of segments": _command(subscribe, _SUBSCRIBE + nested(1000, _ID) * 800_000),
        "of empty ones": _command(report, _REPORT + nested(3, b"") * 2_000_000),
        "of numbers": _command(report, _REPORT + nested(1000, b"\1" * 4_000_000)),
        "of unknown fields": _command(report, _REPORT + _UNKNOWN * 2_000_000),
        "of groups": _command(report, _REPORT + b"\x7b" * 2_000_000 + b"\x7c" * 2_000_000),
        "of a layout": _command(
            BaseCommand.SCALABLE_TOPIC_UPDATE, _ID + nested(2, nested(2, b"") * 2_000_000)
        ),
    }


def _shapes() -> dict[str, bytes]:
    lookup, subscribe = BaseCommand.LOOKUP, BaseCommand.SCALABLE_TOPIC_SUBSCRIBE
    report, traffic = BaseCommand.SCALABLE_CONSUMER_REPORT, BaseCommand.SCALABLE_TRAFFIC_REPORT
    strings = nested(BaseCommand.WATCH_TOPIC_UPDATE, _ID + nested(4, b"") + nested(2, b"") * 1_900)
    segments = nested(report, _REPORT + nested(3, _ID + _UNKNOWN) * 600)
    return {
        "short": _command(lookup, _LOOKUP),
        "long name": _command(lookup, _LOOKUP + nested(1, b"x" * 60_000)),
        "names": _command(lookup, _LOOKUP + b"\x0a\1x" * 1_000),
        "long names": _command(lookup, _LOOKUP + nested(1, b"x" * 250) * 250),
        "names of an entry": _command(
            traffic, _TRAFFIC + nested(6, _ID + b"\x18\0\x20\0" + b"\x12\1x" * 300) * 1_000
        ),
        "unknown": _command(lookup, _LOOKUP + _UNKNOWN * 2_000),
        "strings beside": _command(lookup, _LOOKUP) + strings,
        "segments beside": _command(lookup, _LOOKUP) + segments,
        "segments": _command(subscribe, _SUBSCRIBE + nested(1000, _ID) * _MANY),
        "unknown in each": _command(subscribe, _SUBSCRIBE + nested(1000, _ID + _UNKNOWN) * _MANY),
        "bucket of each": _command(report, _REPORT + nested(3, _ID + nested(2, b"\1")) * _MANY),
        "numbers": _command(report, _REPORT + nested(3, _ID + nested(2, b"\1" * 65_540))),
        "kept": _command(report, _REPORT + nested(1000, b"\1" * _MANY)),
        "kept one by one": _command(report, _REPORT + (varint(1000 << 3) + b"\1") * _MANY),
        "traffic": _command(traffic, _TRAFFIC + nested(6, _ID + b"\x18\0\x20\0") * _MANY),
        "unknown traffic": _command(
            traffic, _TRAFFIC + nested(6, _ID + b"\x18\0\x20\0" + _UNKNOWN) * _MANY
        ),
    }


def _command(number: int, message: bytes) -> bytes:
    return b"\x08" + varint(number) + nested(number, message)


def _share(name: str) -> float:
    """Of what is charged, how much the commands of a shape take."""
    data = _shapes()[name]
    entries.check(data)
    charged = entries.memory_of(commands.parse(data), len(data))
    before = _memory()
    kept = [commands.parse(data) for _ in range(_CHARGED_BYTES // charged)]
    return (_memory() - before) / (charged * len(kept))


def _memory() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE_BYTES
