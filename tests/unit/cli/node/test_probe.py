"""The asking of `anabranch doctor --probe`, on Kafkas that answer as those of other makes."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException

from anabranch.channel.errors import KafkaUnreachableError
from anabranch.channel.kafka.connection import KafkaConnection
from anabranch.channel.kafka.makes import APACHE, MAKES, Make
from anabranch.channel.segments.admin import SegmentSettings
from anabranch.cli.node import probe
from anabranch.cli.node.findings import Finding
from anabranch.cli.shared.flags import settings_of
from support.mock_kafka import MockKafka

_REDPANDA = next(each for each in MAKES if each.name == "Redpanda")


def _scratch(
    make: Make, append: int | None, sealed: Callable[[], dict[str, tuple[int, ...]]]
) -> Any:
    """`append`: the error that each is answered with, None if it is stored."""

    def produce(*_: object, on_delivery: Callable[..., None], **__: object) -> None:
        error = None if append is None else KafkaError(append)
        on_delivery(error, SimpleNamespace(offset=lambda: 0))

    producer = SimpleNamespace(
        produce=produce, flush=lambda _: 0, purge=lambda: None, close=lambda: None
    )
    connection = SimpleNamespace(producer=lambda **_: producer)
    segments = SimpleNamespace(seal=lambda *_: sealed())
    return probe._Scratch(
        "t",
        make,
        SegmentSettings(),
        cast(Any, connection),
        cast(Any, segments),
        cast(Any, SimpleNamespace()),
    )


def _named(name: str) -> Any:
    nothing = cast(Any, None)
    connection = KafkaConnection("kafka:9092")
    return probe._Scratch(name, APACHE, SegmentSettings(), connection, nothing, nothing)


def _findings(at: Any, monkeypatch: pytest.MonkeyPatch, shown: dict[str, str]) -> list[Finding]:
    monkeypatch.setattr(probe, "_shown", lambda _: shown)
    monkeypatch.setattr(probe, "_end", lambda *_: Finding("end", True, ""))
    return list(probe._sealed(at))


def test_redpandas_seal_is_told_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    at = _scratch(_REDPANDA, KafkaError.MSG_SIZE_TOO_LARGE, lambda: {"t": (2,)})
    seal, end = _findings(at, monkeypatch, {"max.message.bytes": "1"})
    assert (seal.ok, end.check) == (True, "end")
    assert "unproven" in seal.found


@pytest.mark.parametrize(
    ("append", "said"),
    [
        (None, "takes appends after a seal"),
        (KafkaError.INVALID_TIMESTAMP, "answers INVALID_TIMESTAMP to appends"),
        (KafkaError.MSG_SIZE_TOO_LARGE, "no answer"),  # the seal's own error is all there is
    ],
)
def test_a_seal_that_fails_says_whether_appends_were_refused(
    monkeypatch: pytest.MonkeyPatch, append: int | None, said: str
) -> None:
    def sealed() -> dict[str, tuple[int, ...]]:
        raise KafkaUnreachableError("no answer")

    (seal,) = _findings(_scratch(APACHE, append, sealed), monkeypatch, {})
    assert (seal.ok, said in seal.found) == (False, True)


def test_only_whole_names_of_doctors_are_leftovers_and_never_those_of_others() -> None:
    name = "clinic-doctor.0a1b2c3d4e5f"
    at = _named(name)
    made = {at.name, at.queue, *at.more, f"{name}.placed"}
    others = {
        *("clinic-doctor.visits", "clinic-doctor.0a1b2c", f"{name}.visits", f"{name}0"),
        *("clinic-doctor.segment.acme.shop.orders.0000-ffff-0.7", f"my.{name}", f"{name}\n"),
    }
    names = probe.scratch_names("clinic-doctor.")
    assert {each for each in made | others if names.fullmatch(each)} == made


def test_settings_that_kafka_does_not_show_are_a_finding_and_asked_for_while_time_is_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wanted, now = {"cleanup.policy": "delete"}, itertools.count()
    unknown = KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))
    refused = KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))
    monkeypatch.setattr(probe, "clock", SimpleNamespace(now=lambda: float(next(now))))
    monkeypatch.setattr(probe, "_POLL_S", 0.0)
    for answers, ok in (([unknown, wanted], True), (itertools.repeat(refused), False)):
        shown = iter(answers)

        def show(_: object, shown: Iterator[Any] = shown) -> dict[str, str]:
            if isinstance(answer := next(shown), KafkaException):
                raise answer
            return cast(dict[str, str], answer)

        monkeypatch.setattr(probe, "_shown", show)
        found = probe._kept(_named("t"), wanted)
        assert (found.check, found.ok) == ("segment settings", ok)
    assert "Topic authorization failed" in found.found


def test_a_kafka_that_can_make_no_topic_gets_a_finding() -> None:
    with MockKafka("other") as kafka:
        connection = KafkaConnection(kafka.servers)
        found = list(
            probe.probed(
                settings_of(None, None, None, None, ()), connection, APACHE, has_queues=False
            )
        )
    assert [(each.check, each.ok) for each in found] == [("leftovers", False)]
    assert "to delete topic anabranch.doctor." in found[0].found
