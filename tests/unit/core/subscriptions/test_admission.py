"""Who is let in to a subscription: each step and each refusal, by what the log and the controller
know."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from anabranch.core.entities.layout import SegmentLayout
from anabranch.core.entities.subscription import NOBODY, Subscription, SubscriptionKind
from anabranch.core.subscriptions.admission import AdmissionStep, SubscribeRequest, admit
from anabranch.core.subscriptions.coordinator import SubscriptionCoordinator
from anabranch.core.subscriptions.timing import Timing

STREAM, QUEUE = SubscriptionKind.STREAM, SubscriptionKind.QUEUE
WISH = SubscribeRequest("public/default/orders", "billing", STREAM, "c", 1)
NEW = Subscription(1, STREAM, 1, (), (), (), 0, 1, "p")
JOINED = replace(NEW, consumers=("c",), instances=(1,))
OURS, OTHERS = 1, 99


@pytest.mark.parametrize(
    ("wish", "known", "step"),
    [
        (WISH, None, AdmissionStep.CREATE),
        (WISH, NEW, AdmissionStep.JOIN),
        (WISH, replace(JOINED, instances=(2,)), AdmissionStep.JOIN),
        (WISH, JOINED, AdmissionStep.OPEN),
        (replace(WISH, kind=QUEUE), replace(NEW, kind=QUEUE), AdmissionStep.OPEN),
        (replace(WISH, kind=QUEUE), NEW, AdmissionStep.OTHER_KIND),
        (replace(WISH, begun_at=OURS), JOINED, AdmissionStep.OPEN),
        (replace(WISH, begun_at=OURS), NEW, AdmissionStep.JOIN),
        (replace(WISH, begun_at=OURS), replace(JOINED, instances=(2,)), AdmissionStep.FENCED),
        (replace(WISH, begun_at=OURS), None, AdmissionStep.DELETED),
        (replace(WISH, begun_at=OTHERS), NEW, AdmissionStep.REPLACED),
        (replace(WISH, begun_at=OTHERS), JOINED, AdmissionStep.OPEN),
        (replace(WISH, begun_at=OTHERS), replace(JOINED, instances=(NOBODY,)), AdmissionStep.JOIN),
        (
            replace(WISH, begun_at=OTHERS, kind=QUEUE),
            replace(NEW, kind=QUEUE),
            AdmissionStep.REPLACED,
        ),
    ],
)
def test_a_consumer_takes_the_next_step(
    wish: SubscribeRequest, known: Subscription | None, step: AdmissionStep
) -> None:
    assert admit(wish, known, None) is step


def coordinator(known: Subscription) -> SubscriptionCoordinator:
    found = SubscriptionCoordinator(Timing())
    found.changed(SegmentLayout.initial(1, 2), known, 0.0)
    return found


@pytest.mark.parametrize("kind", [STREAM, QUEUE])
def test_who_comes_under_a_name_fences_who_has_it_and_who_comes_back_is_fenced(
    kind: SubscriptionKind,
) -> None:
    known = replace(JOINED if kind is STREAM else NEW, kind=kind)
    there, wish = coordinator(known), replace(WISH, kind=kind)
    assert there.opened("c", 1, 7, (), (), 0.0)
    other = replace(wish, instance=2)
    assert admit(other, known, there) is AdmissionStep.FENCE
    assert admit(replace(other, begun_at=OURS), known, there) is AdmissionStep.FENCED
    assert admit(wish, known, there) is AdmissionStep.OPEN


def test_a_name_lapses_before_another_process_is_registered_under_it() -> None:
    there = coordinator(JOINED)
    there.opened("c", 1, 7, ((0, 0),), (), 0.0)
    there.closed("c", 7, 0.0)
    assert admit(replace(WISH, instance=2), JOINED, there) is AdmissionStep.LAPSING
    assert admit(WISH, JOINED, there) is AdmissionStep.OPEN, "the same process may come back"
    there.assignments(Timing().lapse_s + 1.0)
    assert admit(replace(WISH, instance=2), JOINED, there) is AdmissionStep.JOIN


def test_a_name_is_taken_over_at_once_where_its_process_has_ended() -> None:
    there = coordinator(JOINED)
    there.opened("c", 1, 7, ((0, 0), (0, 1)), (), 0.0)
    there.closed("c", 7, 0.0, hung_up=True)
    assert admit(replace(WISH, instance=2), JOINED, there) is AdmissionStep.JOIN
    there.changed(SegmentLayout.initial(1, 2), replace(JOINED, version=2, instances=(2,)), 1.0)
    assert there.opened("c", 2, 8, (), (), 1.0)
    (connection, assignment), *_ = there.assignments(1.0)
    assert connection == 8
    assert assignment.shares == ((0, (0, 1)),), "nobody waits for what the former one had"
