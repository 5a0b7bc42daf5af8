"""What a view promises about its log: that it folds no other, and that no step takes long."""

from __future__ import annotations

from pathlib import Path

import pytest

from anabranch.channel.log.entries import Entry
from anabranch.projections import view as views
from anabranch.projections.errors import ViewLogError
from anabranch.projections.store import Family
from anabranch.projections.view import View
from support.history import History


def test_an_empty_view_adopts_the_log_it_is_given_and_keeps_it(
    tmp_path: Path, log: History
) -> None:
    with View.open(tmp_path) as view:
        view.belong_to("id-0", "a.wal")
        view.belong_to("id-1", "a.wal")  # nothing of the other one was folded
        view.read_batch(log.entries[:10])
    with View.open(tmp_path) as view:
        assert view.log_id == "id-1"
        view.load_snapshot([log.snapshot().rows], lambda: log.snapshot().horizon)
        assert view.log_id == "id-1"
    with View.open(tmp_path) as view:
        view.belong_to("id-1", "a.wal")


def test_a_view_of_another_log_is_refused_with_both_ids_and_the_remedy(
    view: View, log: History
) -> None:
    view.belong_to("id-1", "a.wal")
    view.read_batch(log.entries[:10])
    with pytest.raises(ViewLogError, match=r"topic id id-1, but b.wal has topic id id-2.*delete"):
        view.belong_to("id-2", "b.wal")
    assert view.log_id == "id-1"
    with pytest.raises(ViewLogError, match=str(view.path)):
        view.belong_to("id-2", "b.wal")


def test_a_view_that_was_never_told_its_log_is_refused(view: View, log: History) -> None:
    view.read_batch(log.entries[:10])
    with pytest.raises(ViewLogError, match=r"\(not known\)"):
        view.belong_to("id-1", "a.wal")


def test_a_batch_of_many_changes_is_folded_in_parts(
    view: View, log: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(views, "_CHANGES_MAX", 5)
    folded = []
    parts = 0
    while part := view.read_batch(log.entries):
        assert len({key for fold in part[:-1] for key, _ in fold.outcome.changes}) < 5
        assert view.next_offset == part[-1].offset + 1
        folded += part
        parts += 1
    assert parts > 5
    assert [fold.offset for fold in folded] == [entry.offset for entry in log.entries]
    assert (view.digest, view.timestamp_ms) == (log.state.digest, log.entries[-1].timestamp_ms)


def test_clean_keys_are_forgotten_a_few_at_a_time_and_shown_no_more_at_once(
    tmp_path: Path, log: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(views, "_FORGET_MAX", 2)
    monkeypatch.setattr(views, "_FORGET_SOME", 1)

    def kept(view: View) -> int:
        return len(list(view._store.rows(Family.CHANGED)))

    with View.open(tmp_path) as view:
        view.read_batch(log.entries[:40])
        before = kept(view)
        view.horizon_reached(20)
        view.horizon_reached(30)
        assert kept(view) >= before - 4
        late = {k for f in log.folded[30:40] if f.offset >= 30 for k, _ in f.outcome.changes}
        assert {key.decode() for key, _ in view.freeze().changes()} == late
    with View.open(tmp_path) as view:
        for entry in log.entries[40:]:
            view.read_batch([entry])
        changed = {k for f in log.folded if f.offset >= 30 for k, _ in f.outcome.changes}
        assert {key.decode() for key, _ in view.freeze().changes()} == changed
        for _ in range(1_000):
            view.read_batch([Entry(view.next_offset, 1, None, None)])
        assert kept(view) == len(changed)
