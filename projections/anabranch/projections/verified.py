"""The check that a stored view holds all of its rows, made whenever one is opened."""

from __future__ import annotations

from collections import deque
from pathlib import Path

import msgspec

from anabranch.channel.snapshots.state_sums import FORM
from anabranch.core.fold import digests
from anabranch.projections.errors import ViewDamagedError
from anabranch.projections.examined import CHUNK, ENTITIES, examine, raw_sums
from anabranch.projections.meta import META_KEY, Meta, encode_meta, read_meta
from anabranch.projections.store import Family, Store, new_batch


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
    if raw_sums(store) == meta.sums:
        return meta
    found = examine(store, drop_strays=False)
    if found.strays:  # a newer release's, as after a downgrade
        key = found.strays[0].key
        raise ViewDamagedError(path, f"{key!r} is no state that this release knows")
    if found.sums.keys != meta.keys or (meta.form == FORM and found.sums != meta.sums):
        raise ViewDamagedError(
            path,
            f"of the {meta.keys} keys that were stored it has {found.sums.keys}, or other values "
            "than were stored",
        )
    meta = msgspec.structs.replace(
        meta,
        digest=digests.to_hex(found.digest),
        keys=found.sums.keys,
        check=found.sums.check,
        form=FORM,
    )
    batch = new_batch()
    batch.put(META_KEY, encode_meta(meta), store.families[Family.META])
    store.write(batch)
    return meta
