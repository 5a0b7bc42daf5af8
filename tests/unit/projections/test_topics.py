"""What a view promises about scalable topics: a log in one batch or many, and bounded memory."""

from __future__ import annotations

import pytest

from anabranch.core.log.state import StateQueries
from anabranch.core.log.verdicts import Verdict
from anabranch.core.topics.guards import controller_of
from anabranch.core.topics.topic import TopicMove
from anabranch.projections import reader as readers
from anabranch.projections import view as views
from anabranch.projections.view import View
from support.history import BROKERS, DEFAULT, History
from support.topic_history import ORDERS, begin, create, subscribe, topic_move, topical

TENANTS_TOPICS = ("public/default", "acme/orders")


@pytest.fixture(scope="module")
def log() -> History:
    history = topical(rounds=2)
    begin(history, (9,))  # and leave it there
    return history


def told(state: StateQueries) -> dict[str, object]:
    names = [name for home in TENANTS_TOPICS for name in state.topics(home)]
    return {
        "topics": [(name, state.topic(name)) for name in names],
        "states": [list(state.topic_states(home)) for home in TENANTS_TOPICS],
        "subscriptions": [(name, list(state.subscriptions(name))) for name in names],
        "restless": list(state.restless_topics()),
    }


@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_a_log_of_topics_is_judged_alike_however_it_is_cut(
    view: View, log: History, size: int
) -> None:
    folded = []
    while part := view.read_batch(log.entries[view.next_offset : view.next_offset + size]):
        folded += part
    assert (folded, view.digest) == (log.folded, log.state.digest)
    assert told(view) == told(log.state)
    assert list(view.restless_topics()) == [ORDERS]


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
