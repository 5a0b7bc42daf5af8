"""What the subscriptions received, and what came of it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from faults.messages import Messages, message_of, turned
from faults.promises import Line, Message, Promise, Violation

# For how long a message may wait: docs/topics.md, "How long nobody may serve a bucket".
BUCKET_UNSERVED_S: Final = 96.0
QUEUE_UNSERVED_S: Final = 50.0
# A bucket's next consumer begins behind what the former one has committed. That is all that it had
# acknowledged, unless it was killed or out of touch: then its session has to lapse first, which
# takes longer, since a controller waits for 1.2 sessions, of which a consumer serves one.
SOON_S: Final = 1.0
RECOVERED_S: Final = 30.0  # after a fault's end: Kafka's brokers and processes are there again

Bucket = tuple[int, int]  # segment and bucket
Interval = tuple[float, float]


@dataclass(frozen=True, slots=True)
class _Receipt:
    at: float
    consumer: str
    message: Message
    bucket: Bucket
    offset: int


@dataclass(slots=True)
class _Subscription:
    name: str
    kind: str = "stream"
    received: list[_Receipt] = field(default_factory=list)
    finished: set[Message] = field(default_factory=set)
    applied: list[tuple[float, int, Message]] = field(default_factory=list)


def judged(lines: Sequence[Line], seen: Messages) -> Iterator[Violation]:
    """What subscriptions of each kind are promised; only of what Kafka has."""
    yield from _taken_over(lines)
    calm = _calm(lines)
    places = {
        message_of(line): line.get("place") for line in lines if line["what"] == "acknowledged"
    }
    for subscription in _gathered(lines):
        yield from _undelivered(subscription, seen)
        yield from _unserved(subscription, seen, places, calm)
        if subscription.kind == "queue":
            yield from _unfinished(subscription, seen)
            continue
        yield from turned(subscription.name, _first(subscription), seen)
        yield from _served_twice(subscription)
        if subscription.kind == "checkpoint":
            yield from _applied_wrong(subscription, seen)


def _gathered(lines: Iterable[Line]) -> list[_Subscription]:
    found: dict[str, _Subscription] = {}
    for line in lines:
        if "subscription" not in line:
            continue
        name = line["subscription"]
        one = found.setdefault(name, _Subscription(name))
        match line["what"]:
            case "opened":
                one.kind = line.get("kind", one.kind)
            case "received":
                segment_id, bucket, offset = line.get("place", (-1, -1, -1))
                place = segment_id, bucket
                consumer = line.get("consumer", "")
                one.received.append(_Receipt(line["at"], consumer, message_of(line), place, offset))
            case "finished":
                one.finished.add(message_of(line))
            case "applied":
                one.applied.append((line["stored_at"], line["place"][-1], message_of(line)))
    return [one for _, one in sorted(found.items())]


def _first(subscription: _Subscription) -> list[tuple[float, Message]]:
    """When each message was received for the first time."""
    first: dict[Message, float] = {}
    for each in subscription.received:
        first.setdefault(each.message, each.at)
    return [(at, message) for message, at in first.items()]


# --- all kinds ------------------------------------------------------------------------------------


def _undelivered(subscription: _Subscription, seen: Messages) -> Iterator[Violation]:
    received = {each.message for each in subscription.received} | subscription.finished
    for message, at in sorted(seen.acknowledged.items()):
        if message in seen.stored and message not in received:
            what = f"{subscription.name}: {message} is at {seen.stored[message]}"
            yield Violation(Promise.UNDELIVERED, what, at, message)


def _calm(lines: Sequence[Line]) -> list[Interval]:
    """The times in which nothing is disturbed, nor was some time before: no fault lasts, and all
    nodes that were asked were in touch with Kafka. A starved machine disturbs as faults do.
    """
    ends = {line["fault"]: line["at"] for line in lines if line["what"] == "end"}
    disturbed = []
    for line in lines:
        if line["what"] == "begin":
            disturbed.append((line["at"], ends.get(line["fault"], float("inf"))))
        elif line.get("stale") or line["what"] == "unanswered":
            disturbed.append((line.get("asked", line["at"]), line["at"]))
    found = []
    since = float("-inf")
    for begin, end in sorted(disturbed):
        if begin > since:
            found.append((since, begin))
        since = max(since, end + RECOVERED_S)
    return [*found, (since, float("inf"))]


def _unserved(
    subscription: _Subscription,
    seen: Messages,
    places: dict[Message, list[int] | None],
    calm: Sequence[Interval],
) -> Iterator[Violation]:
    """A message that waited for longer than promised, while nothing failed; one of each bucket."""
    most_s = QUEUE_UNSERVED_S if subscription.kind == "queue" else BUCKET_UNSERVED_S
    worst: dict[Bucket, tuple[float, Message]] = {}
    for at, message in _first(subscription):
        acknowledged = seen.acknowledged.get(message)
        place = places.get(message)
        if acknowledged is None or place is None or at - acknowledged <= most_s:
            continue
        waited = max((min(at, end) - max(acknowledged, begin) for begin, end in calm), default=0.0)
        if waited > most_s:
            bucket = place[0], place[1]
            worst[bucket] = max(worst.get(bucket, (0.0, message)), (waited, message))
    for bucket, (waited, message) in sorted(worst.items()):
        what = f"{subscription.name}: {message} waited for {waited:.0f} s in bucket {bucket}"
        yield Violation(Promise.UNSERVED, what, seen.acknowledged[message], message)


# --- those in order -------------------------------------------------------------------------------


def _served_twice(subscription: _Subscription) -> Iterator[Violation]:
    """A consumer that goes on from where it was itself, though another one has served its bucket.

    Whoever is given a bucket begins where the former one has committed, at most behind what that
    one received. One receipt of the other's between is not enough: it may have been under way when
    its process was paused.
    """
    buckets: defaultdict[Bucket, list[_Receipt]] = defaultdict(list)
    for each in subscription.received:
        buckets[each.bucket].append(each)
    for bucket, receipts in sorted(buckets.items()):
        own: dict[str, int] = {}  # by consumer, where its last receipt is in the list
        for at, receipt in enumerate(receipts):
            before = own.get(receipt.consumer)
            own[receipt.consumer] = at
            if before is None or at - before < 3:
                continue
            one, other = receipts[at - 2 : at]
            if one.consumer == other.consumer and receipt.offset > other.offset + 1:
                what = (
                    f"{subscription.name}, bucket {bucket}: {receipt.consumer} went on at "
                    f"{receipt.offset} while {other.consumer} was at {other.offset}"
                )
                yield Violation(Promise.SERVED_TWICE, what, receipt.at, receipt.message)


def _applied_wrong(subscription: _Subscription, seen: Messages) -> Iterator[Violation]:
    """The effects of a checkpoint subscription: once each, causes first."""
    first: dict[Message, float] = {}
    for at, _, message in sorted(subscription.applied):
        if message in first:
            what = f"{subscription.name}: {message} has its effect more than once"
            yield Violation(Promise.APPLIED_TWICE, what, at, message)
        first.setdefault(message, at)
    received = {each.message for each in subscription.received}
    for message, at in sorted(seen.acknowledged.items()):
        if message in received and message not in first:
            what = f"{subscription.name}: {message} was received, and has no effect"
            yield Violation(Promise.UNAPPLIED, what, at, message)
    effects = [(at, message) for message, at in first.items()]
    yield from turned(f"the sink of {subscription.name}", effects, seen)


# --- queues ---------------------------------------------------------------------------------------


def _unfinished(subscription: _Subscription, seen: Messages) -> Iterator[Violation]:
    """One that was received, and neither acknowledged nor put aside in the end."""
    received = {each.message for each in subscription.received}
    for message, at in sorted(seen.acknowledged.items()):
        if message in received and message not in subscription.finished:
            what = f"{subscription.name}: {message} was received, and never finished"
            yield Violation(Promise.UNFINISHED, what, at, message)


# --- how soon a consumer of a stream is given what another one has just received -----------------


def _taken_over(lines: Sequence[Line]) -> Iterator[Violation]:
    """Two messages of a bucket, or more, that two consumers received at about the same time. A
    single one is no sign: its process was paused in between.
    """
    last: dict[tuple[int, int, int], tuple[float, str]] = {}  # by place: when, and who
    repeated: Counter[tuple[int, int, str, str]] = Counter()
    streams = {each["subscription"] for each in lines if each.get("kind") == "stream"}
    for line in lines:
        if line["what"] != "received" or line["subscription"] not in streams:
            continue
        segment_id, bucket, offset = line["place"]
        at, consumer = line["at"], line["consumer"]
        before, other = last.get((segment_id, bucket, offset), (float("-inf"), consumer))
        last[segment_id, bucket, offset] = at, consumer
        if consumer == other or at - before >= SOON_S:
            continue
        pair = segment_id, bucket, other, consumer
        repeated[pair] += 1
        if repeated[pair] == 2:
            what = (
                f"bucket {(segment_id, bucket)}: {consumer} received {offset} "
                f"{at - before:.3f} s after {other} had"
            )
            yield Violation(Promise.SERVED_TWICE, what, at)
