"""The checks of a stored state: the sums of its bytes, and a look at it row by row.

The look takes some ten times as long as adding up the bytes (`snapshots.state_sums`). So it is done
only if these do not fit, or if another release took them over other schemas.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from anabranch.channel.codec import ENTITY_PREFIXES, encode_entity, read_state
from anabranch.channel.errors import NewerSchemaError, UnreadableError
from anabranch.channel.registry import PREFIX_LENGTH
from anabranch.channel.snapshots.state_sums import FORM, StateSums, row_check
from anabranch.core.fold.digests import Digest, entity_hash, to_hex
from anabranch.projections.errors import ViewDamagedError
from anabranch.projections.meta import META_KEY, Meta, encode_meta, read_meta
from anabranch.projections.store import Family, Store, new_batch

ENTITIES: Final = (Family.POLICIES, Family.UNITS, Family.TOPICS)
CHUNK: Final = 20_000
_STRAYS_MAX: Final = 20  # that are kept by name
_NEWEST: Final = frozenset(ENTITY_PREFIXES)


class Stray(msgspec.Struct, frozen=True):
    """A row that is no state. `unreadable`: its key could be one, but not its value."""

    key: bytes
    why: str
    unreadable: bool


class Examined(msgspec.Struct, frozen=True):
    """The sums of the rows that are state; `strays`: the first of the others."""

    sums: StateSums
    digest: Digest
    strays: tuple[Stray, ...]
    stray_count: int


def raw_sums(store: Store) -> StateSums:
    """The sums over the rows' bytes as they are."""
    sums = StateSums()
    for family in ENTITIES:
        for chunk in store.chunks(family, CHUNK):
            sums = sums.plus(chunk)
    return sums


def examine(store: Store, *, drop_strays: bool) -> Examined:
    """Decodes every row, and writes the rows of an older release anew.

    `drop_strays`: deletes rows that are no state; a snapshot may hold some, a view never.
    """
    keys = check = digest = stray_count = 0
    strays: list[Stray] = []
    for family in ENTITIES:
        for chunk in store.chunks(family, CHUNK):
            batch = new_batch()
            for key, value in chunk:
                try:
                    name, entity = read_state(key, value)
                except (UnreadableError, NewerSchemaError) as error:
                    if drop_strays:
                        batch.delete(key, store.families[family])
                    stray_count += 1
                    if len(strays) < _STRAYS_MAX:
                        strays.append(Stray(key, str(error), _is_text(key)))
                    continue
                if value[:PREFIX_LENGTH] not in _NEWEST:
                    value = encode_entity(entity)
                    batch.put(key, value, store.families[family])
                keys += 1
                check += row_check(key, value)
                digest += entity_hash(name, entity)
            store.write(batch)
    return Examined(StateSums(keys, check), Digest(digest % (1 << 128)), tuple(strays), stray_count)


def _is_text(key: bytes) -> bool:
    try:
        key.decode()
    except UnicodeDecodeError:
        return False
    return True


def told(strays: tuple[Stray, ...], count: int) -> Iterator[str]:
    """The strays in words."""
    for stray in strays:
        yield f"{stray.key!r}: {stray.why}"
    if count > len(strays):
        yield f"and {count - len(strays)} more"


def verified_meta(store: Store, path: Path, loaded: Meta | None = None) -> Meta:
    """The place of the stored rows, all of which must be there.

    `loaded`: the meta of a load that was checked just now. A view of another release, which took
    digest and sums over its own schemas, gets those of this one. Raises ViewDamagedError.
    """
    meta = read_meta(store, path)
    if meta == loaded:
        return meta
    for family in set(Family).difference(ENTITIES):  # no sum tells of a block that is damaged there
        deque(store.chunks(family, CHUNK), maxlen=0)
    kept = meta.sums
    if raw_sums(store) == kept:
        return meta
    found = examine(store, drop_strays=False)
    if found.strays:  # a newer release's, as after a downgrade
        key = found.strays[0].key
        raise ViewDamagedError(path, f"{key!r} is no state that this release knows")
    if found.sums.keys != kept.keys or (kept.form == FORM and found.sums != kept):
        raise ViewDamagedError(
            path,
            f"of the {kept.keys} keys that were stored it has {found.sums.keys}, or other values "
            "than were stored",
        )
    meta = msgspec.structs.replace(meta, digest=to_hex(found.digest), sums=found.sums)
    batch = new_batch()
    batch.put(META_KEY, encode_meta(meta), store.families[Family.META])
    store.write(batch)
    return meta
