"""The commands of scalable topics without a cluster: the picture, the words, wrong usage."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.cli.topics import dag
from anabranch.core.entities.layout import SegmentLayout

Ended = Callable[[list[str]], tuple[int, str]]
TOPIC = "public/default/orders"
EMPTY = "/dev/null"


def grown() -> SegmentLayout:
    layout = SegmentLayout.initial(1)
    return layout.split_segment(0).split_segment(2).merge_segments(1, 3).split_segment(5)


def test_a_split_is_a_box_above_two_and_a_merge_two_above_one() -> None:
    assert dag.draw(grown(), 50) == (
        "epoch  0000          6000   8000      c000    ffff\n"
        "    0  ┌─────────────────────────────────────────┐\n"
        "       │ 0  4 buckets                            │\n"
        "    1  ├────────────────────┬────────────────────┤\n"
        "       │ 1  2 buckets       │ 2  2 buckets       │\n"
        "    2  │                    ├─────────┬──────────┤\n"
        "       │                    │ 3       │ 4        │\n"
        "    3  ├────────────────────┴─────────┤          │\n"
        "       │ 5  3 buckets                 │          │\n"
        "    4  ├─────────────┬────────────────┤          │\n"
        "       │ 6  1 bucket │ 7  1 bucket    │          │\n"
        "  now  ╘═════════════╧════════════════╧══════════╛"
    )


def test_the_picture_has_a_form_without_box_characters() -> None:
    picture = dag.draw(grown(), 50)
    assert dag.fitting(picture, "utf-8") == picture
    drawn = dag.fitting(picture, "latin-1")
    assert drawn.isascii()
    assert drawn.splitlines()[-1] == "  now  +=============+================+==========+"


OPERATIONS = st.lists(st.tuples(st.booleans(), st.integers(0, 999)), max_size=15)


@given(initial=st.integers(1, 60), operations=OPERATIONS, columns=st.integers(80, 160))
def test_every_segment_of_any_layout_is_in_the_picture_and_no_line_is_too_long(
    initial: int, operations: list[tuple[bool, int]], columns: int
) -> None:
    layout = SegmentLayout.initial(initial)
    for is_split, choice in operations:
        active = layout.active
        if is_split and active[choice % len(active)].size > 1:
            layout = layout.split_segment(active[choice % len(active)].segment_id)
        elif len(active) > 1:
            first = choice % (len(active) - 1)
            ids = (active[first].segment_id, active[first + 1].segment_id)
            layout = layout.merge_segments(*ids)
    drawn = dag.draw(layout, columns)
    assert max(map(len, drawn.splitlines())) <= columns
    words = drawn.replace("│", " ").split()
    assert {str(part) for part in layout.segments} <= set(words)


def test_a_segment_whose_parents_are_gone_hangs_from_nothing() -> None:
    layout = SegmentLayout.initial(1).split_segment(0).split_segment(1).prune_segment(0)
    lines = dag.draw(layout.prune_segment(1), 50).splitlines()
    assert lines[1:3] == [
        "    1                        ┌───────────────────┐",
        "                             │ 2  2 buckets      │",
    ]
    assert lines[-1] == "  now  ╘══════════╧══════════╧═══════════════════╛"


def test_many_segments_are_drawn_in_bands_and_too_many_not_at_all() -> None:
    drawn = dag.draw(SegmentLayout.initial(60))
    assert [line.split()[1] for line in drawn.splitlines() if "epoch" in line] == [
        "0000",
        "5555",
        "aaaa",
    ]
    assert dag.draw(SegmentLayout.initial(dag.LANES_MAX + 1)) == ""


def test_rows_say_ranges_in_hex_relations_buckets_and_end_offsets_within_80_columns() -> None:
    layout = SegmentLayout.initial(2, 8)
    children = layout.split_children(0)
    ends = {0: (1_000_001, 1_000_002, 1_000_003, 1_000_004)}
    rows = dag.describe(layout.replaced((0,), children, ends, 0))
    assert rows[0] == (*("0", "0000-7fff", "SEALED", "0-1", "-", "2,3", "4"), "1000001, 1000002,")
    assert rows[1] == ("",) * 7 + ("1000003, 1000004",)
    assert rows[3][:7] == ("2", "0000-3fff", "ACTIVE", "1-", "0", "-", "2")
    assert sum(max(len(row[at]) for row in (dag.HEAD, *rows)) for at in range(8)) + 2 * 7 <= 80


def test_a_file_that_is_no_checkpoint_is_said_at_once(tmp_path: Path, ended: Ended) -> None:
    file = tmp_path / "positions"
    file.write_text("[]")
    arguments = ["topics", "consume", TOPIC, "--subscription", "s", "--type", "checkpoint"]
    status, error = ended([*arguments, "--checkpoint", str(file), "--url", "http://127.0.0.1:9"])
    assert (status, f"{file}: this is no checkpoint" in error) == (2, True), error


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["create", "orders"], "not of the form topic://tenant/namespace/topic"),
        (["create", "persistent://a/b/c"], "those begin with topic://"),
        (["create", "a/b/bad name"], "topic name 'bad name' is not valid"),
        (["rebucket", TOPIC, "1", "0"], "0 is not in the range x>=1"),
        (["subscriptions", "create", TOPIC, "a/b"], "subscription name 'a/b' is not valid"),
        (["subscriptions", "seek", TOPIC, "s", "--to", "noon"], "'noon' is not earliest, latest"),
        (["subscriptions", "seek", TOPIC, "s", "--to", "1969-12-31"], "before 1970"),
        (["properties", TOPIC, "--set", "a"], "'a' is not of the form k=v"),
        (["properties", TOPIC, "--set", "a=b", "--remove", "a"], "a cannot be set and removed"),
        (["produce", TOPIC, "--file", "/nowhere"], "No such file"),
        (["produce", TOPIC, "--service-url", "http://a:1", "--file", EMPTY], "pulsar://"),
        (["consume", TOPIC, "--subscription", "s", "--type", "checkpoint"], "go together"),
        (["consume", TOPIC, "--subscription", "s", "--checkpoint", "/dev/null"], "go together"),
        (["consume", TOPIC, "--subscription", "s", "--timeout", "0"], "--timeout"),
    ],
)
def test_wrong_usage_is_told_asking_no_node(arguments: list[str], said: str, ended: Ended) -> None:
    status, error = ended(["topics", *arguments, "--url", "http://127.0.0.1:9"])
    assert (status, said in error) == (2, True), error
    assert "Traceback" not in error
