"""A view knows the bundle of each scalable topic, and keeps bounded memory for them."""

from __future__ import annotations

import pytest

from anabranch.core.bundles.guards import controller_of
from anabranch.core.entities.topic import TopicMove
from anabranch.core.log.verdicts import Verdict
from anabranch.projections import reader as readers
from anabranch.projections import view as views
from anabranch.projections.view import View
from support.history import BROKERS, DEFAULT, History
from support.topic_history import create, subscribe, topic_move, topical

TENANTS_TOPICS = ("public/default", "acme/orders")


@pytest.fixture(scope="module")
def log() -> History:
    return topical(rounds=2)


def test_a_bundle_that_was_split_in_the_same_batch_has_the_topics_of_its_half(view: View) -> None:
    log = History()
    log.found(bundles=1)
    (whole,) = log.units()
    log.assign(whole, BROKERS[0])
    view.read_batch(log.entries)
    start = log.next_offset
    log.split(whole)
    for half in log.units():
        log.split(half)
    for number in range(20):
        name = f"{DEFAULT}/topic-{number}"
        bundle, _ = controller_of(log.state, name)
        log.transfer(bundle, log.elsewhere(bundle))
        create(log, name)
    late = topic_move(log, TopicMove.UPDATE, f"{DEFAULT}/topic-0")
    bundle, _ = controller_of(log.state, late.topic)
    log.transfer(bundle, log.elsewhere(bundle))
    assert log.append(late) is Verdict.NOT_CONTROLLER
    assert view.read_batch(log.entries[start:]) == log.folded[start:]
    assert view.digest == log.state.digest


def test_decoded_topics_are_kept_by_how_many_segments_they_have(
    view: View, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readers, "SEGMENTS_MAX", 100)
    monkeypatch.setattr(views, "SEGMENTS_MAX", 100)
    log = History()
    log.found()
    names = [f"{DEFAULT}/topic-{number}" for number in range(30)]
    for name in names:
        create(log, name, segments=40)
        subscribe(log, name=name)
    parts = 0
    while part := view.read_batch(log.entries[view.next_offset :]):
        assert part == log.folded[part[0].offset : part[-1].offset + 1]
        assert view._segments <= 100
        parts += 1
    assert parts > 5  # or the batch itself would have held them all
    for name in names * 2:
        assert view.topic(name) == log.state.topic(name)
        assert view._segments <= 140
    assert view.digest == log.state.digest


def test_who_looks_at_all_topics_once_pushes_nothing_out_of_what_is_at_hand(
    view: View, log: History
) -> None:
    view.read_batch(log.entries)
    view._recent.clear()
    seen = [name for home in TENANTS_TOPICS for name, _ in view.topic_states(home)]
    assert seen == [name for home in TENANTS_TOPICS for name in log.state.topics(home)]
    assert not view._recent
