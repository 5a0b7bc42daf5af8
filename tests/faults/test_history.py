"""What a killed process leaves behind: whole lines, whole transactions, and where to go on."""

from __future__ import annotations

from pathlib import Path

from faults.history import Follower, History, read
from faults.sink import Sink


def test_a_process_goes_on_behind_a_line_that_its_death_cut_off(tmp_path: Path) -> None:
    with History(tmp_path, "one") as history:
        history.say("send", number=1)
    with (tmp_path / "one.jsonl").open("ab") as file:
        file.write(b'{"at": 7, "what": "se')
    with History(tmp_path, "one") as history:
        assert [line["number"] for line in history.past] == [1]
        history.say("send", number=2)
    assert [line["number"] for line in read(tmp_path)] == [1, 2]


def test_a_history_is_all_files_in_the_order_of_time(tmp_path: Path) -> None:
    with History(tmp_path, "one") as one, History(tmp_path, "two") as two:
        for number, history in enumerate((two, one, two)):
            history.say("send", number=number)
    lines = read(tmp_path, tmp_path / "none.jsonl")
    assert [(line["number"], line["by"]) for line in lines] == [(0, "two"), (1, "one"), (2, "two")]


def test_a_follower_hears_what_others_say_once_and_whole(tmp_path: Path) -> None:
    follower = Follower(tmp_path, except_for="me")
    with History(tmp_path, "me") as me, History(tmp_path, "other") as other:
        me.say("send", number=1)
        other.say("send", number=2)
        assert [line["number"] for line in follower.more()] == [2]
        with (tmp_path / "other.jsonl").open("ab") as file:
            file.write(b'{"number": 3')
            file.flush()
            assert list(follower.more()) == []
            file.write(b"}\n")
        assert [line["number"] for line in follower.more()] == [3]
        assert list(follower.more()) == []


def test_effects_are_stored_only_where_the_sink_still_is(tmp_path: Path) -> None:
    one, other = Sink(tmp_path / "sink"), Sink(tmp_path / "sink")
    assert one.position(3, 0) is None
    assert one.store((3, 0), None, 2, [("a", 7, 0), ("a", 8, 1)])
    assert other.position(3, 0) == 2
    assert not other.store((3, 0), None, 1, [("a", 7, 0)]), "somebody else was there"
    assert other.store((3, 0), 2, 3, [("b", 1, 2)])
    assert one.store((3, 1), None, 1, [("c", 1, 0)])
    assert [(each.bucket, each.position, list(each.effects)) for each in one.read()] == [
        (0, 2, [("a", 7, 0), ("a", 8, 1)]),
        (0, 3, [("b", 1, 2)]),
        (1, 1, [("c", 1, 0)]),
    ]


def test_a_transaction_that_was_cut_off_has_not_happened(tmp_path: Path) -> None:
    sink = Sink(tmp_path / "sink")
    assert sink.store((3, 0), None, 1, [("a", 7, 0)])
    with (tmp_path / "sink/3-0.transactions").open("ab") as file:
        file.write(b'\n{"at": 1, "position": 2, "eff')
    assert sink.position(3, 0) == 1
    assert sink.store((3, 0), 1, 2, [("a", 8, 1)])
    assert [each.position for each in sink.read()] == [1, 2]
