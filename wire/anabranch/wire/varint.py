"""Numbers of seven bits a byte, the lowest first, in the form of Protobuf's and Kafka's lengths."""

from __future__ import annotations

from typing import Final

_LENGTH_DELIMITED: Final = 2


def varint(number: int) -> bytes:
    """Encodes a number that is not negative.

    >>> varint(300).hex()
    'ac02'
    """
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def nested(field: int, message: bytes) -> bytes:
    """Encodes a serialized message as that field of another one."""
    return varint(field << 3 | _LENGTH_DELIMITED) + varint(len(message)) + message
