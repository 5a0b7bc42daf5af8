"""An order-independent, incremental hash of a folded state (docs/architecture.md).

The digest is the sum, modulo 2^128, of one BLAKE2b hash per key. Changes update a sum, and parts
add up to it. So nodes keep it as they go, and Spark adds up its partitions' sums.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final, NewType

import msgspec

from anabranch.core.log.state import Entity

Digest = NewType("Digest", int)

EMPTY: Final = Digest(0)
_MODULUS: Final = 1 << 128
_encoder = msgspec.msgpack.Encoder()


def entity_hash(key: str, entity: Entity) -> int:
    """Hash of one key and its entity; fields in their declared order, MessagePack-encoded."""
    body = _encoder.encode((key, type(entity).__name__, entity))
    return int.from_bytes(blake2b(body, digest_size=16).digest(), "little")


def replaced(digest: Digest, key: str, before: Entity | None, after: Entity | None) -> Digest:
    """The digest after `key` held `before` and now holds `after` (None: nothing)."""
    total = int(digest)
    if before is not None:
        total -= entity_hash(key, before)
    if after is not None:
        total += entity_hash(key, after)
    return Digest(total % _MODULUS)


def combined(left: Digest, right: Digest) -> Digest:
    """The digest of two states that share no key."""
    return Digest((left + right) % _MODULUS)


def of_entities(entities: dict[str, Entity]) -> Digest:
    """The digest of a state as a whole, the slow way."""
    digest = EMPTY
    for key, entity in entities.items():
        digest = replaced(digest, key, None, entity)
    return digest


def to_hex(digest: Digest) -> str:
    """32 lower-case hex digits, as heartbeats and reports show it."""
    return f"{digest:032x}"
