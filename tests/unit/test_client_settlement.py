"""What a count of stored messages says of those in doubt, and when it says nothing."""

from __future__ import annotations

import itertools

import pytest

from anabranch.client.errors import UnknownOutcomeError
from anabranch.client.settlement import first_of


def test_without_given_up_messages_the_count_tells() -> None:
    assert [first_of(4, beyond, 0) for beyond in range(5)] == [0, 1, 2, 3, 4]


def test_messages_that_were_given_up_are_never_counted_for_others() -> None:
    for refused, forgone in itertools.product(range(4), range(1, 4)):
        for there, given_up_there in itertools.product(range(refused + 1), range(forgone + 1)):
            try:
                told = first_of(refused, there + given_up_there, forgone)
            except UnknownOutcomeError:
                continue
            assert told == there


def test_what_is_all_there_or_not_there_at_all_is_certain_also_then() -> None:
    assert first_of(3, 0, 2) == 0
    assert first_of(3, 5, 2) == 3


def test_a_count_that_cannot_be_is_not_believed() -> None:
    with pytest.raises(UnknownOutcomeError, match="cannot be"):
        first_of(3, 6, 2)
