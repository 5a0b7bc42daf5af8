"""A view takes over a snapshot only if it is what its writer had, and keeps all that it stores."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest

from anabranch.channel.codec import encode_entity
from anabranch.channel.snapshots.state_sums import FORM, StateSums
from anabranch.core.entities.tenant import Tenant
from anabranch.core.entities.unit import Move, Unit, UnitState
from anabranch.projections.errors import SnapshotDamagedError, ViewDamagedError
from anabranch.projections.meta import META_KEY, encode_meta
from anabranch.projections.store import Family, new_batch
from anabranch.projections.view import View
from support.history import BROKERS, DEFAULT, History

FREE = Unit(UnitState.FREE, "", "", 1, Move.CREATE, 0, 0, "")
UNIT = f"{DEFAULT}/0x00000000_0x40000000".encode()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ((UNIT, None), "has 28 keys of 29"),
        ((b"namespace:public/default", None), "has 28 keys of 29"),
        ((UNIT, b"\xc3\x01short"), f"28 keys of 29; b'{UNIT.decode()}' cannot be read"),
        ((UNIT, encode_entity(FREE)), "the 29 keys do not hold what they held"),
        ((b"tenant:forged", encode_entity(Tenant(1, (), (), 0, ""))), "has 30 keys of 29"),
    ],
)
def test_a_snapshot_that_is_not_what_its_writer_had_is_refused(
    view: View, log: History, change: tuple[bytes, bytes | None], said: str
) -> None:
    with pytest.raises(SnapshotDamagedError, match=rf"offset 76 .*b1:8080.*{re.escape(said)}"):
        view.load_snapshot([[*log.snapshot().rows, change]], lambda: log.snapshot().horizon)
    assert view.next_offset == 0
    view.read_batch(log.entries)  # nothing was touched
    assert view.digest == log.state.digest


@pytest.mark.parametrize(
    "rows",
    [
        [(b"\xff\xfe", b"junk")],
        [(b"\xff/\xff/0x00000000_0x40000000", encode_entity(FREE))],
        [(b"topic:\xff", b"junk"), (b"tenant:stranger", b"junk"), (b"a", b"\xc3\x01" + b"x" * 20)],
        [(b"%d" % number, b"") for number in range(30)],
    ],
)
def test_what_a_stranger_put_into_the_snapshot_is_left_out_and_named(
    view: View, log: History, rows: list[tuple[bytes, bytes | None]]
) -> None:
    taken = log.snapshot()
    view.load_snapshot([[*rows, *taken.rows]], lambda: taken.horizon)
    assert view.next_offset == view.horizon == taken.horizon.next_offset
    assert (view.timestamp_ms, view.digest) == (taken.horizon.timestamp_ms, log.state.digest)
    assert dict(view.freeze().everything()) == dict(log.snapshot().rows)
    assert any(stray.startswith(repr(rows[0][0])) for stray in view.strays)
    assert len(view.strays) == min(len(rows), 21)
    path, units = view.path, {name for b in BROKERS for name, _ in view.units_of(b)}
    assert units == {name for b in BROKERS for name, _ in log.state.units_of(b)}
    view.close()
    with View.open(path) as again:
        assert again.digest == log.state.digest


def test_a_snapshot_of_another_release_is_counted_anew(view: View, log: History) -> None:
    horizon = msgspec.structs.replace(log.snapshot().horizon, form=7, check=1, digest="0" * 32)
    view.load_snapshot([log.snapshot().rows], lambda: horizon)
    assert view.digest == log.state.digest
    assert view.freeze().sums == StateSums(29, log.snapshot().horizon.check)


def test_a_snapshot_of_another_release_must_have_all_keys_and_no_row_that_cannot_be_read(
    view: View, log: History
) -> None:
    horizon = msgspec.structs.replace(log.snapshot().horizon, form=7)
    with pytest.raises(SnapshotDamagedError, match="has 28 keys of 29"):
        view.load_snapshot([[*log.snapshot().rows, (UNIT, None)]], lambda: horizon)
    with pytest.raises(SnapshotDamagedError, match="cannot be read"):
        view.load_snapshot([[*log.snapshot().rows, (UNIT, b"junk")]], lambda: horizon)
    with pytest.raises(SnapshotDamagedError, match=r"had when it wrote it: .* cannot be read"):
        view.load_snapshot([[*log.snapshot().rows, (b"another", b"junk")]], lambda: horizon)


def rewritten(
    view: View, log: History, units: Mapping[bytes, bytes | None], digest: str = "", **sums: int
) -> Path:
    """A closed view of the log has this digest, these sums and these rows in its folder."""
    view.read_batch(log.entries)
    batch = new_batch()
    known = view._meta()
    known = msgspec.structs.replace(
        known, digest=digest or known.digest, sums=msgspec.structs.replace(known.sums, **sums)
    )
    batch.put(META_KEY, encode_meta(known), view._store.families[Family.META])
    for key, value in units.items():
        if value is None:
            batch.delete(key, view._store.families[Family.UNITS])
        else:
            batch.put(key, value, view._store.families[Family.UNITS])
    view._store.write(batch)
    view.close()
    return view.path


@pytest.mark.parametrize("form", [FORM, 7])
def test_a_stored_view_that_has_lost_a_row_is_refused(view: View, log: History, form: int) -> None:
    path = rewritten(view, log, {UNIT: None}, form=form)
    with pytest.raises(ViewDamagedError, match=r"of the 29 keys .* it has 28.*puts the view aside"):
        View.open(path)


def test_a_stored_view_of_another_release_is_counted_anew(view: View, log: History) -> None:
    path = rewritten(view, log, {}, digest="1" * 32, check=0, form=7)
    for _ in range(2):
        with View.open(path) as again:
            assert again.digest == log.state.digest
            assert again.freeze().sums.keys == 29


def test_a_stored_view_with_what_only_a_newer_release_knows_is_refused_as_it_is(
    view: View, log: History
) -> None:
    """Without those rows this node's state would differ from the others'."""
    path = rewritten(view, log, {UNIT: b"\xc3\x01" + b"x" * 20}, keys=29, check=1, form=7)
    for _ in range(2):
        with pytest.raises(ViewDamagedError, match=r"no state that this release knows.*aside"):
            View.open(path)
