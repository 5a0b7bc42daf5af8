"""What a view promises at its edges: its folder, its place in the log, its listeners."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from anabranch.channel.codec import Horizon
from anabranch.channel.errors import NewerSchemaError
from anabranch.channel.log.entries import Entry
from anabranch.core.log.verdicts import Verdict
from anabranch.projections import errors
from anabranch.projections.meta import META_KEY
from anabranch.projections.store import Family, new_batch
from anabranch.projections.view import View
from support.history import BROKERS, History, mixed
from support.processes import run_python

# --- the fold -------------------------------------------------------------------------------


def test_an_unreadable_entry_is_rejected_and_takes_its_place(view: View, log: History) -> None:
    view.read_batch(log.entries)
    digest, offset = view.digest, view.next_offset
    key = view.sessions().__next__()[0].encode()
    entries = [Entry(offset, 1, key, b"junk"), Entry(offset + 1, 2, None, None)]
    verdicts = [fold.outcome.verdict for fold in view.read_batch(entries)]
    assert verdicts == [Verdict.UNREADABLE, Verdict.UNREADABLE]
    assert (view.next_offset, view.digest) == (offset + 2, digest)


def test_gaps_between_offsets_are_allowed(view: View) -> None:
    log = History()
    log.found()
    stretched = [
        Entry(entry.offset * 3 + 7, entry.timestamp_ms, entry.key, entry.value)
        for entry in log.entries
    ]
    view.read_batch(stretched)
    assert view.next_offset == stretched[-1].offset + 1
    assert view.unit_count(BROKERS[0]) == 1


def test_a_record_of_a_newer_schema_stops_the_view_where_it_was(view: View, log: History) -> None:
    view.read_batch(log.entries[:10])
    newer = Entry(11, 1, b"x", b"\xc3\x01" + bytes(12), b"unit-move/99")
    with pytest.raises(NewerSchemaError, match="upgrade"):
        view.read_batch([log.entries[10], newer])
    with pytest.raises(errors.ViewError, match="start the node again"):
        view.read_batch(log.entries[10:])
    path = view.path
    view.close()
    with View.open(path) as again:
        assert again.next_offset == 10


# --- its place in the log -------------------------------------------------------------------


def test_an_older_snapshot_is_refused_and_changes_nothing(view: View, log: History) -> None:
    view.read_batch(log.entries)
    with pytest.raises(errors.ViewOffsetError, match="is at"):
        view.load_snapshot([log.snapshot().rows], lambda: Horizon(3, "0" * 32))
    assert view.next_offset == len(log.entries)
    assert view.digest == log.state.digest


def test_a_horizon_that_the_view_has_not_reached_is_refused(view: View, log: History) -> None:
    view.read_batch(log.entries[:30])
    with pytest.raises(errors.ViewOffsetError, match="read the log first"):
        view.horizon_reached(31)


def test_a_frozen_view_shows_its_offset_while_the_view_goes_on(view: View, log: History) -> None:
    view.read_batch(log.entries[:40])
    digest = view.digest
    expected = list(view.freeze().changes())
    frozen = view.freeze()
    view.read_batch(log.entries[40:])
    view.horizon_reached(view.next_offset)
    assert list(frozen.changes()) == expected
    assert (frozen.next_offset, frozen.digest) == (40, digest)


# --- bulk loading ---------------------------------------------------------------------------


def test_a_bulk_load_that_fails_leaves_the_view_as_it_was(view: View, log: History) -> None:
    view.read_batch(log.entries)

    def breaks_off() -> Iterator[list[tuple[bytes, bytes | None]]]:
        yield log.snapshot().rows
        raise ConnectionError("Kafka is gone")

    with pytest.raises(ConnectionError):
        view.load_snapshot(breaks_off(), lambda: log.snapshot().horizon)
    assert view.digest == log.state.digest
    path = view.path
    view.close()
    with View.open(path) as again:
        assert again.next_offset == len(log.entries)
        assert not list(path.glob("loading-*"))


# --- the folder -----------------------------------------------------------------------------


def test_a_folder_in_use_is_refused(view: View) -> None:
    with pytest.raises(errors.ViewLockedError, match="another process"):
        View.open(view.path)


def test_a_folder_in_use_is_refused_also_when_somebody_took_its_lock_away(view: View) -> None:
    (view.path / "lock").unlink()
    with pytest.raises(errors.ViewLockedError, match="another process"):
        View.open(view.path)


def test_a_folder_of_another_format_is_told_as_damaged(tmp_path: Path) -> None:
    with View.open(tmp_path) as view:
        batch = new_batch()
        batch.put(META_KEY, b"\xfejunk", view._store.families[Family.META])
        view._store.write(batch)
    with pytest.raises(errors.ViewDamagedError, match=r"format is 254.*puts the view aside"):
        View.open(tmp_path)


def flip(file: Path) -> None:
    """Changes bytes in the middle, and no length."""
    content = bytearray(file.read_bytes())
    for place in range(len(content) // 4, len(content) * 3 // 4 + 1):
        content[place] ^= 0x55
    file.write_bytes(content)


def swap(file: Path) -> None:
    """Puts a folder in the place of a file."""
    file.unlink()
    file.mkdir()


DAMAGES: list[tuple[str, Callable[[Path], None]]] = [
    ("MANIFEST-*", flip),
    ("MANIFEST-*", Path.unlink),
    ("CURRENT", flip),
    ("CURRENT", Path.unlink),
    ("*.log", flip),
    ("*.sst", flip),
    ("*.sst", Path.unlink),
    ("LOCK", swap),
    ("../lock", swap),
]


@pytest.mark.parametrize(("files", "damage"), DAMAGES)
def test_a_damaged_view_is_what_it_was_at_some_offset_or_makes_way_for_another(
    tmp_path: Path, log: History, files: str, damage: Callable[[Path], None]
) -> None:
    path = tmp_path / "view"
    with View.open(path) as view:
        view.read_batch(log.entries[:40])
        view._store.flush()
        view.read_batch(log.entries[40:])
        shutil.copytree(path, tmp_path / "killed")
    shutil.rmtree(path)
    (tmp_path / "killed").rename(path)
    for file in (path / "view-000000").glob(files):
        damage(file)
    try:
        view = View.open(path)
    except errors.ViewDamagedError:
        assert View.put_aside(path) == tmp_path / "view.damaged-1"
        view = View.open(path)
        assert view.next_offset == 0
    with view:
        view.read_batch(log.entries)
        assert view.digest == log.state.digest
        assert list(view.unsettled()) == list(log.state.unsettled())


def test_every_block_of_a_table_is_read_before_a_view_is_used(tmp_path: Path, log: History) -> None:
    """Else a node would start, and end when it meets the damage: again and again."""
    path = tmp_path / "view"
    with View.open(path) as view:
        view.read_batch(log.entries)
        view._store.flush()
    tables = list((path / "view-000000").glob("*.sst"))
    for table in tables:
        content = table.read_bytes()
        table.write_bytes(bytes([content[0] ^ 1]) + content[1:])
        with pytest.raises(errors.ViewDamagedError, match="checksum"):
            View.open(path)
        table.write_bytes(content)
    assert len(tables) > 3


def test_the_newest_two_damaged_views_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "view"
    for number in range(1, 4):
        with View.open(path):
            pass
        assert View.put_aside(path).name == f"view.damaged-{number}"
    kept = sorted(entry.name for entry in tmp_path.iterdir())
    assert kept == ["view", "view.damaged-2", "view.damaged-3"]


def test_what_the_disk_refuses_is_not_called_damaged() -> None:
    said = Exception("IO error: While open a file: /data/000009.sst: Input/output error")
    for error in (said, PermissionError(13, "Permission denied", "/data/lock")):
        found = errors.view_error(Path("/data"), error)
        assert isinstance(found, errors.ViewRefusedError)
        assert "check the disk" in str(found)


def test_a_file_where_the_folder_should_be_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "view").write_text("")
    with pytest.raises(errors.ViewRefusedError, match="cannot be read or written"):
        View.open(tmp_path / "view")


FULL = """
    import resource, signal, sys
    from pathlib import Path
    from anabranch.projections.errors import ViewError, ViewFullError
    from anabranch.projections.view import View
    from support.history import mixed

    log = mixed(rounds=3)
    view = View.open(Path(sys.argv[1]))
    view.read_batch(log.entries[:20])
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    # No file may grow any more: to RocksDB that is a disk without room.
    resource.setrlimit(resource.RLIMIT_FSIZE, (1024, 1024))
    try:
        view.read_batch(log.entries[20:])
    except ViewFullError as error:
        print(error)
    try:
        view.read_batch(log.entries[20:])
    except ViewError as error:
        print(error)
    view.close()
"""


def test_a_full_disk_loses_nothing_and_says_so(tmp_path: Path) -> None:
    answer = run_python(textwrap.dedent(FULL), str(tmp_path))
    assert answer.returncode == 0, answer.stderr  # closing says nothing more
    first, second = answer.stdout.splitlines()
    assert "free some space" in first
    assert "start the node again" in second
    log = mixed(rounds=3)
    with View.open(tmp_path) as view:
        assert view.next_offset == 20
        view.read_batch(log.entries)
        assert view.digest == log.state.digest
