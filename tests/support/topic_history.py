"""Scalable topics in a history: each function appends what a controller would have proposed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from msgspec.structs import replace

from anabranch.core.bundles.guards import controller_of
from anabranch.core.entities.layout import initial_segments
from anabranch.core.entities.segment import SegmentInfo, parents_of
from anabranch.core.entities.subscription import SubscriptionKind, SubscriptionOp
from anabranch.core.entities.topic import Operation, ScalableTopic, TopicMove
from anabranch.core.fold.evolve import evolve
from anabranch.core.log.records import PolicyOp, SubscriptionChange, TopicChange
from anabranch.core.subscriptions.propose import subscription_change
from anabranch.core.topics.propose import topic_change
from support.history import BROKERS, DEFAULT, History, Rule
from support.there import there

ORDERS: Final = f"{DEFAULT}/orders"
BILLING: Final = "billing"
Spoil = Callable[[ScalableTopic], ScalableTopic]


def topic_of(history: History, name: str = ORDERS) -> ScalableTopic:
    """The topic as it stands."""
    return there(history.state.topic(name), name)


def with_part(number: int, **fields: Any) -> Spoil:
    """Another form of one segment."""

    def spoil(topic: ScalableTopic) -> ScalableTopic:
        parts = (replace(p, **fields) if p.segment_id == number else p for p in topic.segments)
        return replace(topic, segments=tuple(parts))

    return spoil


def controlled(history: History, name: str = ORDERS) -> None:
    """The bundle of the topic's name gets an owner."""
    bundle, owner = controller_of(history.state, name)
    if not owner:
        history.assign(bundle, BROKERS[0])


def topic_move(
    history: History, move: TopicMove, name: str = ORDERS, by: str = "", **fields: Any
) -> TopicChange:
    """A proposal for a topic's next version, by its controller unless `by` says otherwise."""
    actor = history.actor(by or controller_of(history.state, name)[1])
    return topic_change(actor, name, history.state.topic(name), move, history.new_id(), **fields)


def subscription_move(
    history: History,
    op: SubscriptionOp,
    subscription: str = BILLING,
    name: str = ORDERS,
    **fields: Any,
) -> SubscriptionChange:
    """The same for a subscription of the topic, which must exist."""
    actor = history.actor(controller_of(history.state, name)[1])
    before = history.state.subscription(name, subscription)
    return subscription_change(
        actor, name, topic_of(history, name), subscription, before, op, history.new_id(), **fields
    )


def create(
    history: History, name: str = ORDERS, segments: int = 2, buckets: int = 1, **fields: Any
) -> None:
    """A topic is created and opened."""
    controlled(history, name)
    first = initial_segments(segments, segments * buckets)
    history.accepted(topic_move(history, TopicMove.CREATE, name, segments=first, **fields))
    history.accepted(topic_move(history, TopicMove.OPEN, name))


def created(rule: Rule = evolve, buckets: int = 1) -> History:
    """A cluster with a topic of two segments."""
    history = History(rule)
    history.found()
    create(history, buckets=buckets)
    return history


def begin(
    history: History,
    parents: Sequence[int],
    name: str = ORDERS,
    buckets: int = 0,
    prepare: int = 0,
) -> None:
    """A split of one segment, a merge of two, a rebucket to `buckets`, or all are prepared."""
    layout = topic_of(history, name).layout
    children: tuple[SegmentInfo, ...]
    if prepare:
        operation, children = Operation.PREPARE, layout.prepare_children(prepare)
    elif buckets:
        operation, children = Operation.REBUCKET, layout.rebucket_children(parents[0], buckets)
    elif len(parents) == 1:
        operation, children = Operation.SPLIT, layout.split_children(parents[0])
    else:
        operation, children = Operation.MERGE, layout.merge_children(*parents)
    history.accepted(
        topic_move(
            history,
            TopicMove.BEGIN,
            name,
            operation=operation,
            parents=parents_of(children),
            segments=children,
        )
    )


def commit(history: History, name: str = ORDERS, end_offset: int = 100) -> None:
    """The operation under way is brought to its end; every partition ends at the same offset."""
    history.accepted(topic_move(history, TopicMove.SEALING, name))
    topic = topic_of(history, name)
    ends = (end_offset,) * sum(topic.layout.segment(each).buckets for each in topic.parents)
    history.accepted(topic_move(history, TopicMove.COMMIT, name, end_offsets=ends))


def reshape(history: History, parents: Sequence[int], name: str = ORDERS, buckets: int = 0) -> None:
    """The whole of an operation."""
    begin(history, parents, name, buckets)
    commit(history, name)


def subscribe(
    history: History,
    subscription: str = BILLING,
    name: str = ORDERS,
    consumers: Sequence[str] = (),
    kind: SubscriptionKind = SubscriptionKind.STREAM,
) -> None:
    """A subscription is created and consumers join it."""
    make = subscription_move(history, SubscriptionOp.CREATE, subscription, name, kind=kind)
    history.accepted(make)
    for number, consumer in enumerate(consumers):
        join(history, consumer, number + 1, subscription, name)


def join(
    history: History, consumer: str, instance: int, subscription: str = BILLING, name: str = ORDERS
) -> None:
    """A consumer's process registers under its name."""
    op = SubscriptionOp.JOIN
    history.accepted(
        subscription_move(history, op, subscription, name, consumer=consumer, instance=instance)
    )


def drain(
    history: History, segments: Sequence[int], subscription: str = BILLING, name: str = ORDERS
) -> None:
    """Everything in these segments is consumed."""
    ids = tuple(segments)
    history.accepted(
        subscription_move(history, SubscriptionOp.DRAINED, subscription, name, segment_ids=ids)
    )


def prune(history: History, segments: Sequence[int], name: str = ORDERS) -> None:
    """Drained segments leave the layout, and then Kafka."""
    ids = tuple(segments)
    history.accepted(topic_move(history, TopicMove.PRUNE, name, segment_ids=ids))
    history.accepted(topic_move(history, TopicMove.CLEAR, name, segment_ids=ids))


def delete(history: History, name: str = ORDERS) -> None:
    """A topic is deleted with its subscriptions."""
    history.accepted(topic_move(history, TopicMove.DELETE, name))
    history.accepted(topic_move(history, TopicMove.REMOVE, name))


def topical(rounds: int = 1) -> History:
    """A history with something of everything that happens to topics, in two tenants."""
    history = History()
    history.found()
    history.tenant("acme")
    history.namespace("acme/orders", 2)
    names = (ORDERS, "acme/orders/bills", "acme/orders/returns")
    for name in names:
        create(history, name, segments=3, buckets=2, properties=("owner", name))
        subscribe(history, BILLING, name, ("c-1", "c-2"))
        subscribe(history, "audit", name, (), SubscriptionKind.QUEUE)
    for _ in range(rounds):
        for name in names:
            _round(history, name)
    late = topic_move(history, TopicMove.UPDATE, names[1], properties=("owner", "nobody"))
    delete(history, names[1])
    history.append(late)
    create(history, names[1], segments=1)
    history.namespace("acme/gone", 1)
    history.namespace("acme/gone", op=PolicyOp.DELETE)
    return history


def _round(history: History, name: str) -> None:
    first, second, third, *_ = (part.segment_id for part in topic_of(history, name).layout.active)
    loser = topic_move(history, TopicMove.BEGIN, name)
    reshape(history, (first,), name)
    history.append(loser)
    reshape(history, (second, third), name)
    merged = topic_of(history, name).next_segment_id - 1
    begin(history, (merged,), name)
    history.accepted(topic_move(history, TopicMove.ABORT, name))
    aborted = tuple(part.segment_id for part in topic_of(history, name).garbage)
    history.accepted(topic_move(history, TopicMove.CLEAR, name, segment_ids=aborted))
    reshape(history, (merged,), name, buckets=3)
    begin(history, (), name, prepare=3)
    commit(history, name)
    sealed = [part for part in topic_of(history, name).segments if not part.is_active]
    for subscription, known in history.state.subscriptions(name):
        news = [part.segment_id for part in sealed if part.segment_id not in known.drained]
        drain(history, news, subscription, name)
    prune(history, [part.segment_id for part in sealed if not part.parent_ids], name)
    history.accepted(
        subscription_move(history, SubscriptionOp.LEAVE, BILLING, name, consumer="c-1")
    )
    join(history, "c-1", 9, BILLING, name)
    bundle, owner = controller_of(history.state, name)
    history.transfer(bundle, next(broker for broker in BROKERS if broker != owner))
    history.accepted(topic_move(history, TopicMove.UPDATE, name, properties=("by", owner)))
