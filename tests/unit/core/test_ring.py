"""Bundle ranges: what they hold, how they are named, how they are cut."""

from __future__ import annotations

import doctest
from types import ModuleType

import pytest

from anabranch.core import names, ring
from anabranch.core.bundles import propose
from anabranch.core.bundles.propose import by_count, choose_broker
from anabranch.core.errors import InvalidInputError
from anabranch.core.log import records
from anabranch.core.names import parse_namespace
from anabranch.core.ring import (
    BUNDLES_MAX,
    FULL_RING,
    RING_END,
    HashRange,
    bundle_name,
    even_ranges,
    parse_range,
    split_bundle_name,
    tiles,
    topic_hash,
)


@pytest.mark.parametrize("module", [names, propose, records, ring])
def test_the_examples_in_docstrings_hold(module: ModuleType) -> None:
    assert doctest.testmod(module).failed == 0


def test_a_range_holds_its_lower_end_and_only_the_rings_last_one_its_upper() -> None:
    inner, last = parse_range("0x40000000_0x80000000"), parse_range("0xc0000000_0xffffffff")
    assert 0x40000000 in inner
    assert 0x7FFFFFFF in inner
    assert 0x80000000 not in inner
    assert 0x3FFFFFFF not in inner
    assert RING_END in last
    assert 0xFFFFFFFE in last
    assert 0xBFFFFFFF not in last


@pytest.mark.parametrize("count", [1, 2, 3, 7, 64, BUNDLES_MAX])
def test_even_ranges_tile_the_ring(count: int) -> None:
    parts = even_ranges(count)
    assert len(parts) == count
    assert tiles(parts, FULL_RING)
    sizes = [part.upper - part.lower for part in parts]
    assert max(sizes) - min(sizes) <= count


def test_even_ranges_are_a_part_of_the_whole_ring_rounded_down() -> None:
    assert even_ranges(641)[0] == HashRange(0, 2**32 // 641)


@pytest.mark.parametrize("count", [0, -4, BUNDLES_MAX + 1])
def test_a_number_of_bundles_that_does_not_fit_is_named_in_the_refusal(count: int) -> None:
    with pytest.raises(InvalidInputError, match=f"Invalid number of bundles {count}"):
        even_ranges(count)


@pytest.mark.parametrize(
    "text",
    [
        "0x00000000_0xFFFFFFFF",
        "0x00000000_0xffffffff ",
        "0x00000000_0x100000000",
        "0x80000000_0x40000000",
        "0x40000000_0x40000000",
    ],
)
def test_malformed_ranges_are_refused(text: str) -> None:
    with pytest.raises(InvalidInputError, match="bundle range"):
        parse_range(text)


def test_halves_are_cut_in_the_middle_rounded_down() -> None:
    assert [str(half) for half in FULL_RING.halves()] == [
        "0x00000000_0x7fffffff",
        "0x7fffffff_0xffffffff",
    ]
    assert [str(half) for half in HashRange(4, 7).halves()] == [
        "0x00000004_0x00000005",
        "0x00000005_0x00000007",
    ]


@pytest.mark.parametrize("part", [HashRange(0, 1), HashRange(0xFFFFFFFE, RING_END)])
def test_a_bundle_that_no_two_names_can_divide_is_not_split(part: HashRange) -> None:
    assert not part.splittable
    with pytest.raises(InvalidInputError, match="cannot be split"):
        part.halves()


@pytest.mark.parametrize("positions", [[0], [16], [17], [8, 8], [12, 4], [-1]])
def test_cuts_must_ascend_inside_the_bundle(positions: list[int]) -> None:
    with pytest.raises(InvalidInputError, match="cannot be cut"):
        HashRange(0, 16).cut_at(positions)


@pytest.mark.parametrize(
    "parts",
    [
        [],
        [HashRange(0, 8)],
        [HashRange(8, 16)],
        [HashRange(0, 8), HashRange(9, 16)],
        [HashRange(0, 9), HashRange(8, 16)],
        [HashRange(0, 0), HashRange(0, 16)],
    ],
)
def test_what_does_not_cover_a_range_exactly_once_does_not_tile_it(parts: list[HashRange]) -> None:
    assert not tiles(parts, HashRange(0, 16))


def test_unit_names_are_read_back() -> None:
    home = parse_namespace("public/default")
    part = parse_range("0x00000000_0x40000000")
    name = bundle_name(home, part)
    assert name == "public/default/0x00000000_0x40000000"
    assert split_bundle_name(name) == (home, part)
    with pytest.raises(InvalidInputError):
        split_bundle_name("leadership")


def test_topics_are_hashed_by_their_full_name_with_crc_32() -> None:
    assert topic_hash("123456789") == 0xCBF43926
    assert 0 <= topic_hash("persistent://public/default/orders") <= RING_END


def test_a_unit_goes_to_the_broker_with_the_fewest_units() -> None:
    counts = {"a:1": 2, "b:1": 1, "c:1": 3}
    assert choose_broker("u", counts, counts) == by_count("u", counts)[0] == "b:1"
    assert by_count("u", counts, excluded=("b:1",))[0] == "a:1"
    assert choose_broker("u", {}, ()) == by_count("u", {"a:1": 0}, excluded=("a:1",))[0] == ""


def test_equals_are_chosen_by_name_and_unit_alike_on_every_node() -> None:
    equals = {f"b{i}:1": 5 for i in range(4)}
    reverse = dict(reversed(equals.items()))
    chosen = {f"u{i}": choose_broker(f"u{i}", equals, equals) for i in range(200)}
    assert chosen == {unit: choose_broker(unit, reverse, reverse) for unit in chosen}
    assert set(chosen.values()) == set(equals)
