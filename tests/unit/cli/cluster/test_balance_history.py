"""`anabranch balance history`: what it makes of a log."""

from __future__ import annotations

from msgspec.structs import replace

from anabranch.cli.cluster.balance_history import AutomaticMove, moves_of
from anabranch.cli.cluster.log import LogLine, sentence
from anabranch.core.entities.unit import Move
from anabranch.core.log.grounds import Grounds
from anabranch.core.log.records import Cause, Record, UnitMove
from anabranch.core.log.verdicts import Verdict

BUNDLE = "public/default/0x00000000_0x40000000"


def moved(cause: Cause, deviation: float = -1.0, predicted: float = -1.0) -> UnitMove:
    grounds = Grounds(cause.name, 3, deviation, predicted, ())
    return UnitMove("p", BUNDLE, Move.RELEASE, 2, "a:1", 1, "b:1", cause=cause, choice=(grounds,))


def line(at_ms: int, record: Record | None, verdict: Verdict | None = Verdict.ACCEPTED) -> LogLine:
    return LogLine(at_ms, at_ms, record, verdict)


def test_each_move_has_what_was_predicted_and_what_the_next_cycle_found() -> None:
    split = UnitMove("p", BUNDLE, Move.SPLIT, 3, "a:1", 1, children=("x", "y"), cause=Cause.TOPICS)
    found = moves_of(
        [
            line(0, moved(Cause.OPERATOR)),
            line(1_000, moved(Cause.OVERLOADED, 0.5, 0.3)),
            line(1_001, moved(Cause.OVERLOADED, 0.3, 0.2)),
            line(1_002, moved(Cause.OVERLOADED, 0.2, 0.1), Verdict.STALE_VERSION),
            line(30_000, split),
            line(60_500, split),
            line(61_000, moved(Cause.UNDERLOADED, 0.25, 0.1)),
            line(61_500, moved(Cause.UNDERLOADED, 0.0)),
            line(62_000, None, Verdict.UNREADABLE),
            line(63_000, UnitMove("p", BUNDLE, Move.OWN, 4, "b:1", 1, cause=Cause.BALANCE)),
        ]
    )
    assert [(each.offset, each.reason, each.to) for each in found] == [
        (1_000, "OVERLOADED", "b:1"),
        (1_001, "OVERLOADED", "b:1"),
        (30_000, "TOPICS", "x, y"),
        (60_500, "TOPICS", "x, y"),
        (61_000, "UNDERLOADED", "b:1"),
        (61_500, "UNDERLOADED", "b:1"),
    ]
    first = AutomaticMove(1_000, 1_000, "RELEASE", BUNDLE, "b:1", "OVERLOADED", 0.5, 0.3, 0.25)
    assert found[0] == replace(first, rule="OVERLOADED")
    assert found[2].rule == ""
    assert [(each.deviation, each.predicted, each.observed) for each in found] == [
        (0.5, 0.3, 0.25),
        (0.3, 0.2, 0.25),
        (None, None, 0.25),
        (None, None, None),
        (0.25, 0.1, None),
        (0.0, None, None),
    ]
    assert moves_of([line(0, split), line(9_000, split)])[0].observed is None


def test_a_record_s_sentence_has_deviations_only_where_they_are_known() -> None:
    over = sentence(moved(Cause.OVERLOADED, 0.5, 0.3))
    assert " among 3 brokers: OVERLOADED, deviation 0.50 to 0.30  (" in over
    assert " among 3 brokers: LOOKUP, deviation 0.50  (" in sentence(moved(Cause.LOOKUP, 0.5))
    assert " among 3 brokers: LOOKUP  (" in sentence(moved(Cause.LOOKUP))
