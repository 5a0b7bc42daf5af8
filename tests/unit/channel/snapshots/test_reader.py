"""Where a reader of the snapshot says it ends, whatever Kafka's client hands over together."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import Consumer, KafkaError

from anabranch.channel.codec import HORIZON_KEY, Horizon, encode_horizon
from anabranch.channel.errors import KafkaUnreachableError
from anabranch.channel.kafka.connection import NO_GROUP, KafkaConnection
from anabranch.channel.kafka.topics import Topics
from anabranch.channel.snapshots import reader
from anabranch.channel.snapshots.reader import last_horizon

_HORIZON = Horizon(7, "0" * 32)
_END, _AWAY = KafkaError._PARTITION_EOF, KafkaError._TRANSPORT


class ToldOnce(KafkaConnection, frozen=True):
    """A connection whose consumer hands these over, and then is silent; None: a horizon."""

    told: tuple[int | None, ...] = ()

    def consumer(self, **_: Any) -> Consumer:
        answers = iter([[_message(code) for code in self.told]])
        given = SimpleNamespace(
            get_watermark_offsets=lambda *_: (0, 0),
            assign=lambda _: None,
            consume=lambda *_: next(answers, []),
            close=lambda: None,
        )
        return cast(Consumer, given)


def _message(code: int | None) -> Any:
    is_error = code is not None
    return SimpleNamespace(
        error=lambda: KafkaError(code) if code is not None else None,
        key=lambda: None if is_error else HORIZON_KEY.encode(),
        value=lambda: None if is_error else encode_horizon(_HORIZON),
        offset=lambda: 0,
    )


@pytest.mark.parametrize("told", [(_END,), (_END, NO_GROUP), (_AWAY, _END, _AWAY)])
def test_an_error_beside_the_end_of_a_snapshot_does_not_hide_that_end(
    told: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "_PATIENCE_S", 0.0)
    assert last_horizon(ToldOnce("nowhere:1", told=told), Topics("a.")) is None


def test_an_end_with_more_behind_it_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "_PATIENCE_S", 0.0)
    again = ToldOnce("nowhere:1", told=(_END, None, _END))
    assert last_horizon(again, Topics("a.")) == _HORIZON
    with pytest.raises(KafkaUnreachableError):
        last_horizon(ToldOnce("nowhere:1", told=(_END, None, NO_GROUP)), Topics("a."))
