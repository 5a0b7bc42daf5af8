"""Bounds the entries that a client's command may list, and the memory of the parsed command.

A parsed entry takes up to 70 times its bytes, and the event loop stands still meanwhile. So the
entries of a long command are counted in its bytes before it is parsed. A short command, like nearly
all, has no room for too many.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Final, NamedTuple

from anabranch.wire import commands
from anabranch.wire.anabranch_pb2 import BaseCommand
from anabranch.wire.errors import ExcessError, FrameError
from anabranch.wire.varint import nested

SHORT_BYTES: Final = 4_096  # the entries of a command up to this size are not counted
ENTRIES_MAX: Final = 10_000  # segments, for example
_OTHERS_MAX: Final = 256  # fields that are no lists: each comes once
_LONG_BYTES: Final = 1_024  # larger entries are looked into
_ENTRY_FIELDS_MAX: Final = 16
_OTHERS_BYTES_MAX: Final = 1 << 16  # names, above all; they are read at any length
_FIELDS: Final = f"more than {_OTHERS_MAX} fields, or {_OTHERS_BYTES_MAX} bytes, that are no lists"


class Most(NamedTuple):
    """The bounds of one list in a command. `size` bounds the bytes of all entries, each of which
    may be a number. Long entries without numbers do not count.
    """

    entries: int
    size: int


_PAIRS: Final = Most(1_000, 1 << 20)
_BUCKETS: Final = Most(ENTRIES_MAX, 1 << 18)
# All fields in which clients list anything. Other lists are of commands that only nodes send.
LISTS: Final[Mapping[int, Mapping[str, Most]]] = {
    BaseCommand.GET_TOPICS_OF_NAMESPACE: {"properties": _PAIRS},
    BaseCommand.WATCH_SCALABLE_TOPICS: {"property_filters": _PAIRS},
    BaseCommand.SCALABLE_TOPIC_SUBSCRIBE: {"holdings": _BUCKETS, "drained": _BUCKETS},
    BaseCommand.SCALABLE_CONSUMER_REPORT: {
        "released": _BUCKETS,
        "drained": _BUCKETS,
        "also_kept": Most(ENTRIES_MAX, ENTRIES_MAX),
    },
    BaseCommand.SCALABLE_TRAFFIC_REPORT: {"segments": Most(ENTRIES_MAX, 1 << 20)},
}

_BUCKET_BYTES: Final = 2  # for numbers below 1,024
_HOLDING_BYTES: Final = 12  # around the buckets of one segment


def can_be_named(segments: int, buckets: int) -> bool:
    """Returns True if one list of a command has room for so many."""
    size = _HOLDING_BYTES * segments + _BUCKET_BYTES * buckets
    return segments <= _BUCKETS.entries and size <= _BUCKETS.size


# Bytes of memory, each a little more than `python -m bench parsed` measures.
_OF_COMMAND: Final = 1_536
_OF_BYTE: Final = 2
_OF_LISTED_BYTE: Final = 13  # it may be a number, in an array that has just doubled
_OF_ENTRY: Final = 160
_OF_BYTE_BESIDE: Final = 24  # a byte of no field, or of a repeated one
_HEAD_BYTES: Final = 16  # around the message of a command

_VARINT, _LENGTH = 0, 2  # wire types
_REQUEST_ID_TAG: Final = 0x08  # field 1, a number
_FIXED: Final = {1: 8, 3: 0, 4: 0, 5: 4}  # their bytes; the fields of a group count one by one


class _List(NamedTuple):
    name: str
    most: Most
    has_numbers: bool


def _has_lists(form: Any) -> bool:
    return any(
        field.is_repeated or (field.message_type is not None and _has_lists(field.message_type))
        for field in form.fields
    )


def _list(field: Any, most: Most) -> _List:
    return _List(field.name, most, field.message_type is None or _has_lists(field.message_type))


_MESSAGES: Final[Mapping[int, Any]] = {
    field.number: field.message_type
    for field in BaseCommand.DESCRIPTOR.fields
    if field.message_type is not None
}
_LISTS: Final = {
    number: {
        field.number: _list(field, its[field.name])
        for field in _MESSAGES[number].fields
        if field.name in its
    }
    for number, its in LISTS.items()
}
_WITH_NUMBERS: Final = {
    number for number, its in _LISTS.items() if any(each.has_numbers for each in its.values())
}
_OF_NODES: Final = {
    number for number, form in _MESSAGES.items() if number not in LISTS and _has_lists(form)
}


def check(data: bytes | bytearray) -> None:
    """Looks at a client's command up to the first excess.

    Raises ExcessError for that, and FrameError for bytes that are no command.
    """
    if len(data) <= SHORT_BYTES:
        return
    others, room, message = _OTHERS_MAX, _OTHERS_BYTES_MAX, 0
    for tag, begin, start, end in _fields(data, 0, len(data)):
        number = tag >> 3 if tag & 7 == _LENGTH else 0
        others -= 1
        if number not in _MESSAGES:
            room -= end - start
        if others < 0 or room < 0 or (message and number in _MESSAGES):
            reason = f"a command of more than one message, or {_FIELDS}: send one at a time"
            raise ExcessError(reason, bytes(data[:begin]))
        if number in _MESSAGES:
            message = number
            found, until = _too_much(data, start, end, number)
            if found:
                head = bytes(data[:begin]) + nested(number, bytes(data[start:until]))
                reason = f"{commands.name_of(number)} has {found}: send less at once"
                raise ExcessError(reason, head)


def request_id_in(data: bytes | bytearray) -> int:
    """Returns the request id of a command that is not parsed, if it is field 1, as in answers.

    It reads up to there, and returns NO_REQUEST for a command without one. Raises FrameError.
    """
    for tag, _, start, end in _fields(data, 0, len(data)):
        if tag & 7 == _LENGTH and tag >> 3 in _MESSAGES:
            for its_tag, _, its_start, _ in _fields(data, start, end):
                if its_tag == _REQUEST_ID_TAG:
                    return _varint(data, its_start)[0]
    return commands.NO_REQUEST


def _too_much(data: bytes | bytearray, start: int, end: int, message: int) -> tuple[str, int]:
    """Returns the excess in a message, "" for none, and the place at which its lists begin."""
    if message in _OF_NODES:
        return f"more than {SHORT_BYTES} bytes, and only nodes send so much of it", start
    lists, listed, others = _LISTS.get(message, {}), 0, [_OTHERS_MAX, _OTHERS_BYTES_MAX]
    left = {number: [*each.most] for number, each in lists.items()}
    for tag, begin, its_start, its_end in _fields(data, start, end):
        its = left.get(tag >> 3)
        if its is None:
            others[0] -= 1
            others[1] -= its_end - its_start
            if min(others) < 0:
                return _FIELDS, listed or begin
            continue
        listed, size = listed or begin, its_end - its_start
        if size > _LONG_BYTES and not lists[tag >> 3].has_numbers:
            fields = islice(_fields(data, its_start, its_end), _ENTRY_FIELDS_MAX + 1)
            if len(list(fields)) > _ENTRY_FIELDS_MAX:
                return f"more than {_ENTRY_FIELDS_MAX} fields in an entry", listed
            size = 0
        its[0] -= 1
        its[1] -= size
        if its[0] < 0 or its[1] < 0:
            name, most, _ = lists[tag >> 3]
            return f"more than {most.entries} entries in {name}, or {most.size} bytes", listed
    return "", 0


def _fields(
    data: bytes | bytearray, position: int, end: int
) -> Iterator[tuple[int, int, int, int]]:
    """Yields the tag of each field, its begin, and the begin and end of its value.

    Raises FrameError. It is a plain loop with the short cases first, because it runs for each
    entry.
    """
    try:
        while position < end:
            begin = position
            tag, position = data[position], position + 1
            if tag >= 0x80:
                more = data[position]
                if more < 0x80:
                    tag, position = tag + (more - 1 << 7), position + 1
                else:
                    tag, position = _varint(data, begin)
            kind, start = tag & 7, position
            if kind == _LENGTH:
                size, start = data[position], position + 1
                if size >= 0x80:
                    size, start = _varint(data, position)
                position = start + size
            elif kind == _VARINT:
                position = position + 1 if data[position] < 0x80 else _varint(data, position)[1]
            else:
                position += _FIXED[kind]
            if position > end:
                break
            yield tag, begin, start, position
    except (IndexError, KeyError):
        position = end + 1
    if position > end:
        raise FrameError(f"{len(data)} bytes that are no command")


def _varint(data: bytes | bytearray, position: int) -> tuple[int, int]:
    """Returns the number at that position, and the next position. Raises IndexError for none."""
    number = 0
    for shift in range(0, 70, 7):
        byte = data[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, position
    raise IndexError


def memory_of(command: BaseCommand, size: int) -> int:
    """Returns the most bytes that a command of that size takes, if nodes serve it and `check` lets
    it pass.

    The command may have fewer fields than came: the parser also keeps those that another one
    replaces.
    """
    message = commands.payload_of(command)
    own: int = message.ByteSize()
    beside = max(0, size - own - _HEAD_BYTES)
    entries = sum(len(getattr(message, name)) for name in LISTS.get(command.type, ()))
    of_byte = _OF_LISTED_BYTE if command.type in _WITH_NUMBERS else _OF_BYTE
    return _OF_COMMAND + of_byte * own + _OF_ENTRY * entries + _OF_BYTE_BESIDE * beside
