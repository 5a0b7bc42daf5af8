"""What a node remembers of decisions: only those that something came of."""

from __future__ import annotations

from anabranch.broker.topics.controllers.decisions import ScaleDecisions
from anabranch.core.autoscale.decisions import Blocked, NoAction, Reason, Split
from anabranch.core.autoscale.schedule import Evaluation, Trigger

SPLIT = Split(0, Reason.MSG_RATE_IN, "hot")


def looked(decision: Split | NoAction) -> Evaluation:
    return Evaluation(1, Trigger.TICK, decision, None)


def scaling() -> ScaleDecisions:
    return ScaleDecisions("b1:8080")


def test_topics_at_rest_do_not_push_out_what_is_remembered_of_others() -> None:
    known = scaling()
    known.note("t/n/hot", looked(SPLIT))
    for number in range(2_000):
        known.note(f"t/n/{number}", looked(NoAction(None, "nothing to do")))
    assert [each.decision for each in known.decisions("t/n/hot")] == [SPLIT]


def test_what_stands_in_the_way_is_remembered_once_until_it_has_gone() -> None:
    known = scaling()
    kept = NoAction(Blocked.MAX_SEGMENTS, "64 segments")
    for decision in (kept, kept, NoAction(None, "cold"), kept):
        known.note("t/n/a", looked(decision))
    assert len(known.decisions("t/n/a")) == 2


def test_of_many_topics_those_of_the_last_decisions_are_remembered() -> None:
    known = scaling()
    for number in range(1_001):
        known.note(f"t/n/{number}", looked(SPLIT))
    assert known.decisions("t/n/0") == ()
    assert known.decisions("t/n/1") != ()
    known.drop(lambda name: name == "t/n/1")
    assert known.decisions("t/n/1") == ()
