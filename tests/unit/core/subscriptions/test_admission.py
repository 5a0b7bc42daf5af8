"""Who is let in to a subscription: each step and each refusal, by what the log and the controller
know."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from anabranch.core.subscriptions.admission import AdmissionStep, SubscribeRequest, admit
from anabranch.core.subscriptions.coordinator import SubscriptionCoordinator
from anabranch.core.subscriptions.subscription import NOBODY, Subscription, SubscriptionKind
from anabranch.core.subscriptions.timing import Timing
from anabranch.core.topics.layout import SegmentLayout

STREAM, QUEUE = SubscriptionKind.STREAM, SubscriptionKind.QUEUE
WISH = SubscribeRequest("public/default/orders", "billing", STREAM, "c", 1)
NEW = Subscription(1, STREAM, 1, (), (), (), 0, 1, "p")
JOINED = replace(NEW, consumers=("c",), instances=(1,))
OURS, OTHERS = "group", "former group"


@pytest.mark.parametrize(
    ("wish", "known", "step"),
    [
        (WISH, None, AdmissionStep.CREATE),
        (WISH, NEW, AdmissionStep.JOIN),
        (WISH, replace(JOINED, instances=(2,)), AdmissionStep.JOIN),
        (WISH, JOINED, AdmissionStep.OPEN),
        (replace(WISH, kind=QUEUE), replace(NEW, kind=QUEUE), AdmissionStep.OPEN),
        (replace(WISH, kind=QUEUE), NEW, AdmissionStep.OTHER_KIND),
        (replace(WISH, group_id=OURS), JOINED, AdmissionStep.OPEN),
        (replace(WISH, group_id=OURS), NEW, AdmissionStep.JOIN),
        (replace(WISH, group_id=OURS), None, AdmissionStep.DELETED),
        (replace(WISH, group_id=OTHERS), NEW, AdmissionStep.REPLACED),
        (replace(WISH, group_id=OTHERS), JOINED, AdmissionStep.OPEN),
        (replace(WISH, group_id=OTHERS), replace(JOINED, instances=(NOBODY,)), AdmissionStep.JOIN),
        (
            replace(WISH, group_id=OTHERS, kind=QUEUE),
            replace(NEW, kind=QUEUE),
            AdmissionStep.REPLACED,
        ),
    ],
)
def test_a_consumer_takes_the_next_step(
    wish: SubscribeRequest, known: Subscription | None, step: AdmissionStep
) -> None:
    assert admit(wish, known, OURS, None) is step


def coordinator(known: Subscription) -> SubscriptionCoordinator:
    found = SubscriptionCoordinator(Timing())
    found.changed(SegmentLayout.initial(1, 2), known, 0.0)
    return found


def test_a_name_that_is_connected_is_taken_for_all_others() -> None:
    there = coordinator(JOINED)
    assert there.opened("c", 1, 7, (), (), 0.0)
    assert admit(replace(WISH, instance=2), JOINED, OURS, there) is AdmissionStep.TAKEN
    assert admit(WISH, JOINED, OURS, there) is AdmissionStep.OPEN


def test_a_name_lapses_before_another_process_is_registered_under_it() -> None:
    there = coordinator(JOINED)
    there.opened("c", 1, 7, ((0, 0),), (), 0.0)
    there.closed("c", 7, 0.0)
    assert admit(replace(WISH, instance=2), JOINED, OURS, there) is AdmissionStep.LAPSING
    assert admit(WISH, JOINED, OURS, there) is AdmissionStep.OPEN, "the same process may come back"
    there.assignments(Timing().lapse_s + 1.0)
    assert admit(replace(WISH, instance=2), JOINED, OURS, there) is AdmissionStep.JOIN
