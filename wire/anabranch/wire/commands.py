"""Commands: into their envelope, out of bytes, their names and request ids.

Each type has the number of its field in BaseCommand, so one table, made from the descriptor, serves
all of them.
"""

from __future__ import annotations

from itertools import islice
from typing import Any, Final, cast

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.unknown_fields import UnknownFieldSet

from anabranch.wire.anabranch_pb2 import BaseCommand
from anabranch.wire.errors import FrameError

# Names no request: no client counts that far. (Some count from 0, so that 0 would hit their first.)
NO_REQUEST: Final = 2**64 - 1

_TYPE_FIELD: Final = 1
_REPEATED_MAX: Final = 1_000  # a frame has room for a million, which would take a second
_NAMES: Final = {int(value): name for name, value in BaseCommand.Type.items()}
_PAYLOADS: Final = {
    field.number: field.name
    for field in BaseCommand.DESCRIPTOR.fields
    if field.message_type is not None
}
_NUMBERS: Final = {
    field.message_type.full_name: field.number
    for field in BaseCommand.DESCRIPTOR.fields
    if field.message_type is not None
    and not field.message_type.name.startswith(("Unserved", "Refused"))  # they have several
}


def envelope(message: Message) -> BaseCommand:
    """Returns the command that carries the message, one of the .proto file's Command...
    messages.
    """
    number = number_of(message)
    command = empty(number)
    getattr(command, _PAYLOADS[number]).CopyFrom(message)
    return command


def number_of(message: Message) -> int:
    """Returns the number of the command that carries the message."""
    return _NUMBERS[message.DESCRIPTOR.full_name]


def empty(type_number: int) -> BaseCommand:
    """Returns the command of that type with nothing set in its message."""
    command = BaseCommand(type=name_of(type_number))
    getattr(command, _PAYLOADS[type_number]).SetInParent()
    return command


def parse(data: bytes | bytearray) -> BaseCommand:
    """Returns the command in a frame. Its type and fields may be foreign. Raises FrameError.

    Do not rely on the fields that `lacking` names.
    """
    command = BaseCommand()
    try:
        command.ParseFromString(cast(bytes, data))  # either, whatever its stub says
    except DecodeError:
        raise FrameError(f"{len(data)} bytes that are no command") from None
    if not command.HasField("type") and type_of(command) == 0:
        raise FrameError(f"a command of {len(data)} bytes without a type")
    return command


def type_of(command: BaseCommand) -> int:
    """Returns the type's number, which BaseCommand may not know, 0 for none."""
    if command.HasField("type"):
        return command.type
    # A value that the enumeration does not have is kept among the unknown fields.
    unknown: Any = UnknownFieldSet(command)  # iterable, which its stub does not say
    for field in unknown:
        if field.field_number == _TYPE_FIELD and isinstance(field.data, int):
            return field.data
    return 0


def name_of(type_number: int) -> str:
    """Returns the type's name, for people."""
    return _NAMES.get(type_number, f"command {type_number}")


def payload_of(command: BaseCommand) -> Any:
    """Returns the message that the command carries, None if it has none that is known here."""
    name: Any = _PAYLOADS.get(type_of(command))
    return getattr(command, name) if name is not None and command.HasField(name) else None


def request_id_of(command: BaseCommand) -> int:
    """Returns the id by which the sender knows its request, NO_REQUEST if there is none."""
    payload = payload_of(command)
    if payload is None or "request_id" not in payload.DESCRIPTOR.fields_by_name:
        return NO_REQUEST
    return int(payload.request_id) if payload.HasField("request_id") else NO_REQUEST


def is_sound(command: BaseCommand) -> bool:
    """Returns True if nothing is lacking, and all text is UTF-8."""
    name: Any = _PAYLOADS.get(command.type)
    if name is None or not command.HasField(name) or not command.IsInitialized():
        return False
    return not _garbled(getattr(command, name), _TEXTS[command.type])


def lacking(command: BaseCommand) -> str:
    """Returns the name of a required field that is missing, or has a value that is not known here;
    "" for none.

    It names only the first one in nested messages, because there may be thousands.

    >>> lacking(BaseCommand(type=BaseCommand.LOOKUP))
    'lookupTopic'
    """
    name: Any = _PAYLOADS.get(type_of(command))
    if name is not None and not command.HasField(name):
        return str(name)
    return "" if command.IsInitialized() else _lacking(command)


def _lacking(message: Any, path: str = "") -> str:
    needed = [field.name for field in message.DESCRIPTOR.fields if field.is_required]
    missing = [path + name for name in needed if not message.HasField(name)]
    missing = [each for each in missing if each != "type"]
    if missing:
        return ", ".join(missing)
    for field, held in message.ListFields():
        if field.message_type is not None:
            for each in held if field.is_repeated else (held,):
                if not each.IsInitialized():
                    return _lacking(each, f"{path}{field.name}.")
    return ""


def _texts(form: Any) -> Any:
    own = [field.name for field in form.fields if field.type == FieldDescriptor.TYPE_STRING]
    inner = [
        (field.name, field.is_repeated, _texts(field.message_type))
        for field in form.fields
        if field.message_type is not None
    ]
    return own, [each for each in inner if any(each[2])]


_TEXTS: Final[dict[int, Any]] = {
    field.number: _texts(field.message_type)
    for field in BaseCommand.DESCRIPTOR.fields
    if field.message_type is not None
}


def garbled(command: BaseCommand) -> str:
    """Returns the first field whose text is not UTF-8, which the parser lets pass; "" for none.

    It looks at a limited number of values of a repeated field. A command with more is never served.
    """
    payload = payload_of(command)
    return _garbled(payload, _TEXTS[type_of(command)]) if payload is not None else ""


def _garbled(message: Any, texts: Any) -> str:
    own, inner = texts
    for name in own:
        if isinstance(getattr(message, name), bytes):  # the parser leaves bytes then
            return str(name)
    for name, is_repeated, its in inner:
        held = getattr(message, name) if is_repeated else (getattr(message, name),)
        for each in islice(held, _REPEATED_MAX):
            found = _garbled(each, its)
            if found:
                return f"{name}.{found}"
    return ""
