"""The row that says which place in the log a view stands for."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from anabranch.channel.snapshots.state_sums import StateSums
from anabranch.projections.errors import ViewDamagedError
from anabranch.projections.store import Family, Store

FORMAT: Final = 1  # for all families; the first byte of the row
META_KEY: Final = b"view"


class Meta(msgspec.Struct, frozen=True, array_like=True):
    """Written with every batch."""

    next_offset: int = 0
    digest: str = "0" * 32
    horizon: int = -1
    timestamp_ms: int = 0  # the log's, of the last entry folded
    counts: dict[str, int] = {}  # broker -> units that name it as their broker
    log_id: str = ""  # the folded log's id; "" until the view is told
    sums: StateSums = StateSums()  # of the stored rows


_decoder: Final = msgspec.msgpack.Decoder(Meta)
_encoder: Final = msgspec.msgpack.Encoder()


def encode_meta(meta: Meta) -> bytes:
    """Format number and fields."""
    return bytes((FORMAT,)) + _encoder.encode(meta)


def read_meta(store: Store, path: Path) -> Meta:
    """The stored row, or that of an empty view. Raises ViewDamagedError."""
    value = store.get(Family.META, META_KEY)
    if value is None:
        return Meta()
    if not value or value[0] != FORMAT:
        found = value[0] if value else 0
        raise ViewDamagedError(path, f"its format is {found}, this release's is {FORMAT}")
    try:
        return _decoder.decode(value[1:])
    except msgspec.MsgspecError as error:
        raise ViewDamagedError(path, f"its place in the log is unreadable: {error}") from error
