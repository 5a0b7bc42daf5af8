"""Kafka's answers about a producer's name: who is to ask again, who has lost it, and what helps."""

from __future__ import annotations

import struct

import pytest

from anabranch.wire.kafka import names
from anabranch.wire.kafka.producing import KafkaNotYetError
from anabranch.wire.kafka.protocol import NO_TAGS, KafkaProtocolError, ResponseReader, array, text


@pytest.mark.parametrize("code", [3, 6, 14, 16, 51])
def test_what_passes_is_to_be_asked_again(code: int) -> None:
    with pytest.raises(KafkaNotYetError):
        names.check(code, "tell")


@pytest.mark.parametrize("code", [47, 49, 90])
def test_another_owner_is_told_from_every_other_error(code: int) -> None:
    with pytest.raises(names.NameTakenError):
        names.check(code, "tell")


@pytest.mark.parametrize(("code", "remedy"), [(30, "consume"), (53, "produce"), (12, "100")])
def test_a_refusal_names_the_remedy(code: int, remedy: str) -> None:
    with pytest.raises(KafkaProtocolError, match=remedy) as raised:
        names.check(code, "tell")
    assert type(raised.value) is KafkaProtocolError


def test_an_owner_with_nothing_open_is_the_owner() -> None:
    names.read_owner(ResponseReader(struct.pack(">ih", 0, 48) + NO_TAGS))
    names.read_owner(ResponseReader(struct.pack(">ih", 0, 0) + NO_TAGS))
    with pytest.raises(names.NameTakenError):
        names.read_owner(ResponseReader(struct.pack(">ih", 0, 90) + NO_TAGS))


def test_one_refused_bucket_refuses_a_commit() -> None:
    def answer(*codes: int) -> ResponseReader:
        parts = (struct.pack(">ih", number, code) + NO_TAGS for number, code in enumerate(codes))
        return ResponseReader(
            struct.pack(">i", 0) + array([text("t0") + array(parts) + NO_TAGS]) + NO_TAGS
        )

    names.read_codes(answer(0, 0))
    with pytest.raises(KafkaNotYetError, match=r"t0\[1\]"):
        names.read_codes(answer(0, 3))
