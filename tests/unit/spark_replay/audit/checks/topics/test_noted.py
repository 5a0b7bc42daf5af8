"""What the log has put a subscription behind it need not commit, and nothing else excuses it."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.core.entities.subscription import SegmentPositions, SubscriptionOp
from anabranch.core.entities.topic import TopicMove
from anabranch.spark_replay.audit.checks.topics.segments import SegmentEnds
from anabranch.spark_replay.audit.tally import CheckName
from support.local_audit import audited, violated
from support.topic_history import BILLING, ORDERS, created, reshape, subscription_move, topic_move

_Record = tuple[SubscriptionOp, dict[str, Any]]

_ENDS, _MIDDLE = (SegmentPositions(0, (100, 100)),), (SegmentPositions(0, (100, 40)),)
_MADE: _Record = (SubscriptionOp.CREATE, {})
_MADE_AT_END: _Record = (SubscriptionOp.CREATE, {"positions": _ENDS, "segment_ids": (0,)})
_SKIPPED: _Record = (SubscriptionOp.RESET, {"positions": _ENDS, "segment_ids": (0,)})
_SOUGHT: _Record = (SubscriptionOp.RESET, {"positions": _MIDDLE})
_SOUGHT_BACK: _Record = (SubscriptionOp.RESET, {})
_READ: _Record = (SubscriptionOp.DRAINED, {"segment_ids": (0,)})
_NOTED: _Record = (SubscriptionOp.POSITIONS, {"positions": _ENDS})
_HALF_NOTED: _Record = (SubscriptionOp.POSITIONS, {"positions": _MIDDLE})
_LATER: _Record = (SubscriptionOp.POSITIONS, {"positions": (SegmentPositions(1, (7, 7)),)})
_JOINED: _Record = (SubscriptionOp.JOIN, {"consumer": "c"})
_DELETED: _Record = (SubscriptionOp.DELETE, {})
_NONE, _HERE = (-1, -1), (0, 0)


@pytest.mark.parametrize(
    ("why", "records", "committed", "begins", "buckets"),
    [
        ("it begins at the latest", [_MADE_AT_END], _NONE, _HERE, 0),
        ("it began so, and went on", [_MADE_AT_END, _LATER], _NONE, _HERE, 0),
        ("it was skipped", [_MADE, _READ, _SKIPPED], _NONE, _HERE, 0),
        ("it was sought to a time", [_MADE, _SOUGHT, _READ], (-1, 100), _HERE, 0),
        ("sought back, it read again", [_MADE_AT_END, _SOUGHT_BACK, _READ], (100, 100), _HERE, 0),
        ("sought back, it did not", [_MADE_AT_END, _SOUGHT_BACK, _READ], (100, -1), _HERE, 1),
        ("made again, it did not", [_MADE_AT_END, _DELETED, _MADE, _READ], _NONE, _HERE, 2),
        ("Kafka has forgotten it, not the log", [_MADE, _NOTED, _READ], _NONE, _HERE, 0),
        ("somebody came meanwhile", [_MADE, _NOTED, _JOINED, _READ], _NONE, _HERE, 0),
        ("retention took the rest", [_MADE, _READ], (10, -1), (100, 100), 0),
        ("a bug: nothing excuses it", [_MADE, _HALF_NOTED, _READ], (10, 60), (90, 99), 1),
    ],
)
def test_a_subscription_commits_what_it_has_to_read(
    why: str,
    records: list[_Record],
    committed: tuple[int, ...],
    begins: tuple[int, ...],
    buckets: int,
) -> None:
    """`buckets`: in how many of two, sealed at 100 each, it has not."""
    history = created(buckets=2)
    reshape(history, (0,))
    for op, fields in records:
        history.accepted(subscription_move(history, op, **fields))
    history.accepted(topic_move(history, TopicMove.UPDATE, properties=("a", "b")))
    place = (ORDERS, 0)
    kafka = SegmentEnds({place: (100, 100)}, {(ORDERS, BILLING, 0): committed}, {place: begins})
    findings = audited(history, segment_ends=kafka)
    (found,) = (each for each in findings.checks if each.name is CheckName.SEGMENTS)
    assert found.violated == buckets, why
    assert violated(findings) == ([CheckName.SEGMENTS] if buckets else [])
