"""Numbers of seven bits a byte, the lowest first: as Protobuf and Kafka write lengths."""

from __future__ import annotations


def varint(number: int) -> bytes:
    """A number that is not negative.

    >>> varint(300).hex()
    'ac02'
    """
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)
