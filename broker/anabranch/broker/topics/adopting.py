"""A Kafka topic becomes a scalable topic where it lies (PIP-475; docs/kafka.md, "Adoption").

It is segment 0, which covers the ring, and its partitions are the buckets. Nothing in Kafka is
changed until the cut-over, `topics prepare`, which seals it as any segment. Before that it can be
released, and then is as it was. After that it can be given back: it takes messages again from its
old ends on, as one segment in place of all.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Final

from anabranch import admin
from anabranch.broker.errors import (
    ConflictError,
    ForbiddenError,
    OverloadedError,
    PreconditionError,
    UnavailableError,
    listed,
)
from anabranch.broker.logging import get_logger
from anabranch.broker.requester import principal
from anabranch.broker.topics.operations import TopicOperations
from anabranch.broker.topics.subscriptions.groups import written_parts
from anabranch.broker.topics.subscriptions.positions import survey
from anabranch.core.adoption.adoptable import entry_for, parse_adoptable
from anabranch.core.adoption.refusals import refusals
from anabranch.core.adoption.survey import TopicSurvey
from anabranch.core.adoption.verdict import PartitionerVerdict
from anabranch.core.entities.giving_back import give_back_children
from anabranch.core.entities.segment import SegmentInfo, legacy_segment
from anabranch.core.entities.subscription import SubscriptionKind
from anabranch.core.entities.topic import Operation, ScalableTopic, TopicState
from anabranch.core.names import Namespace, full_name, namespace_of
from anabranch.core.partitioners import Partitioner
from anabranch.core.topics.retention import unsettled_s
from anabranch.wire.kafka.protocol import KafkaProtocolError

AUTO: Final = "auto"
NONE: Final = "none"
_NAMES: Final = tuple(each.value for each in Partitioner)
_CERTAIN: Final = (
    PartitionerVerdict.CERTAIN,
    PartitionerVerdict.SET,
    PartitionerVerdict.SINCE,
)
_SURVEY_S: Final = 20.0
_COUNT_S: Final = 10.0
_AT_ONCE: Final = 4
_WAITING_MAX: Final = 20
_SEEN_AT_ONCE: Final = 500  # topics looked at before others have their turn


class Adoptions:
    """The requests of one node, for use in its event loop.

    `survey`: looks at a Kafka topic, and blocks for so many seconds.
    """

    def __init__(
        self, topics: TopicOperations, survey: Callable[[str, float], TopicSurvey]
    ) -> None:
        self._topics = topics
        self._access = topics.access
        self._runtime = topics.access.runtime
        self._ask = survey
        self._turn = asyncio.Semaphore(_AT_ONCE)
        self._waiting = 0
        self._log = get_logger(broker=self._runtime.core.me)

    async def survey(self, name: str, kafka_topic: str) -> admin.AdoptionSurvey:
        """Looks at a Kafka topic that the topic's namespace may adopt, and changes nothing.

        Raises ForbiddenError, PreconditionError for none that is there, and UnavailableError.
        """
        self._entry(name, kafka_topic)
        return await self._look(kafka_topic)

    async def _look(self, kafka_topic: str) -> admin.AdoptionSurvey:
        if self._waiting >= _WAITING_MAX:
            raise OverloadedError(f"{_WAITING_MAX} surveys wait already; try again later")
        self._waiting += 1
        try:
            return await self._surveyed(kafka_topic)
        finally:
            self._waiting -= 1

    async def _surveyed(self, kafka_topic: str) -> admin.AdoptionSurvey:
        async with self._turn:
            try:
                found = await asyncio.to_thread(self._ask, kafka_topic, _SURVEY_S)
            except OSError as error:
                raise UnavailableError(f"Kafka does not answer: {error}; try again") from None
            except KafkaProtocolError as error:
                raise PreconditionError(str(error)) from None
        refused = refusals(found, self._access.service.prefix)
        return admin.AdoptionSurvey(found, refused, _partitioner(found))

    async def adopt(self, name: str, kafka_topic: str, partitioner: str) -> None:
        """Makes the Kafka topic the first segment of a new scalable topic.

        `partitioner`: a name, AUTO for the one that a survey finds, or NONE, so that none of ours
        writes before the cut-over. Raises as `survey`, PreconditionError for a Kafka topic that
        cannot be adopted, and ConflictError for one that is adopted already.
        """
        self._access.must_be_enabled()
        entry = self._entry(name, kafka_topic)
        if partitioner not in (AUTO, NONE, *_NAMES):
            raise PreconditionError(
                f"there is no partitioner {partitioner!r}: say {AUTO}, {NONE} or one of "
                f"{', '.join(_NAMES)}"
            )
        self._access.namespace(name)
        await self._access.control(name, self._access.deadline())  # before what takes long
        await self._must_be_free(kafka_topic)
        seen = await self._look(kafka_topic)
        _must_not_be_refused(seen)
        chosen = {AUTO: seen.partitioner, NONE: ""}.get(partitioner, partitioner)
        if partitioner == AUTO and not chosen:
            raise PreconditionError(
                f"the survey's verdict on the partitioner of Kafka topic {kafka_topic} is "
                f"{seen.survey.judgement.verdict.value}: name the one by which producers of ours "
                f"shall place keys, of {', '.join(_NAMES)}, or {NONE}: then they write after the "
                "cut-over only"
            )
        await self._must_be_free(kafka_topic)
        found = seen.survey
        limit = found.settings.get("max.message.bytes")
        part = legacy_segment(
            kafka_topic,
            found.topic_id,
            found.partitions,
            chosen,
            int(limit.value) if limit is not None else 0,
        )
        await self._topics.make(name, (part,), adoptable=entry)
        self._log.info(
            "topic.adopted",
            topic=name,
            kafka_topic=kafka_topic,
            partitions=found.partitions,
            partitioner=chosen or NONE,
            verdict=found.judgement.verdict.value,
            principal=principal(),
        )

    async def must_fit_cut_over(self, name: str, *, keeps: bool) -> None:
        """Raises PreconditionError if the topic is an adopted one that cannot be sealed now.

        Its settings, or the nodes' rights, may have changed since its adoption. `keeps`: it has to
        be an adopted one. Raises as `survey`.
        """
        topic = await self._topics.controlled(name)
        if keeps and topic.adopted is None:
            raise PreconditionError(
                f"{full_name(name)} was cut over, or never adopted: only a cut-over can say that "
                "the Kafka topic stays"
            )
        if topic.adopted is not None:
            self._must_be_settled(name, topic.adopted, "given back")
        if topic.adopted is None or topic.state is not TopicState.STABLE:
            return
        seen = await self._look(topic.adopted.legacy_topic)
        _must_not_be_refused(seen)
        if seen.survey.missing_rights:
            raise PreconditionError(
                f"nodes may not {', '.join(seen.survey.missing_rights)} Kafka topic "
                f"{topic.adopted.legacy_topic}: a cut-over takes these rights on it; grant them"
            )

    async def release(self, name: str) -> None:
        """Forgets a topic that was adopted and not cut over, or given back and has nothing else.

        Raises as `TopicOperations.delete`, and PreconditionError for any other topic.
        """
        topic = await self._topics.controlled(name)
        await self._topics.delete(name, unless=_must_be_releasable)
        self._log.info(
            "topic.released",
            topic=name,
            kafka_topic=topic.adopted.legacy_topic if topic.adopted is not None else "",
            principal=principal(),
        )

    async def give_back(self, name: str, *, leave: bool) -> admin.GivenBack:
        """Opens the Kafka topic of a topic that was cut over, in place of all its segments.

        SDK clients follow, and keys keep their order for them. `leave`: also if messages lie in
        segments, which plain readers of the Kafka topic will not see. Does nothing where it was
        done before. Raises PreconditionError while it is not possible, and as
        `TopicOperations.split`.
        """
        topic = await self._topics.controlled(name)
        part = topic.legacy
        if part is None:
            why = "was not adopted"
            if topic.adopted_from:
                why = f"has dropped Kafka topic {topic.adopted_from} after its retention"
            raise PreconditionError(f"{full_name(name)} {why}: there is nothing to give back")
        if topic.operation is not Operation.NONE or (part.is_active and not part.start_offsets):
            raise ConflictError(
                f"{full_name(name)} was not cut over, or has an operation under way: release it, "
                "or try again when that is done"
            )
        left = await self._left(name, topic)
        if not part.is_active:
            self._must_be_read(name, part)
            if left and not leave:
                raise PreconditionError(
                    f"{left} messages of {full_name(name)} lie in segments after Kafka topic "
                    f"{part.legacy_topic}, where its plain readers will not see them: say that "
                    "they are left there (--leave-middle), and read them by the SDK"
                )
            self._must_be_settled(name, part, "sealed")
            await self._topics.operate(
                name,
                Operation.GIVE_BACK,
                f"of Kafka topic {part.legacy_topic}",
                give_back_children,
            )
            left = await self._left(name, self._access.topic(name))  # with what came meanwhile
            self._log.info(
                "topic.given_back",
                topic=name,
                kafka_topic=part.legacy_topic,
                left=left,
                principal=principal(),
            )
        return admin.GivenBack(part.legacy_topic, left)

    def _must_be_read(self, name: str, part: SegmentInfo) -> None:
        """Raises PreconditionError unless nobody needs what the Kafka topic held."""
        what = f"Kafka topic {part.legacy_topic} of {full_name(name)}"
        if part.parent_ids:
            raise PreconditionError(
                f"{what} comes after segments {listed(part.parent_ids)}: give it back once their "
                "retention is over"
            )
        for each, known in self._runtime.view.subscriptions(name):
            if known.kind is SubscriptionKind.QUEUE:
                raise PreconditionError(
                    f"subscription {each} is a queue, which Kafka cannot let go on in {what}: "
                    "delete it first, and make it again afterwards"
                )
            if part.segment_id not in known.drained:
                raise PreconditionError(
                    f"{what} is still to be read by subscription {each}: let its consumers "
                    "finish, or delete the subscription"
                )

    def _must_be_settled(self, name: str, part: SegmentInfo, did: str) -> None:
        """Raises ConflictError while somebody may act as if it were not sealed, or not given back.

        `did`: which of them was done last.
        """
        settled_s = self._access.service.settings.settled_s
        left_s = unsettled_s(part, self._runtime.core.log_ms, settled_s)
        if left_s > 0:
            raise ConflictError(
                f"Kafka topic {part.legacy_topic} of {full_name(name)} was {did} just now. "
                f"Somebody who is cut off may not know: try again in {math.ceil(left_s)} s"
            )

    async def _left(self, name: str, topic: ScalableTopic) -> int:
        """Returns how many messages Kafka has in segments of our making."""
        prefix = self._access.service.prefix
        ours = [p for p in written_parts(prefix, name, topic) if not p.segment.is_legacy]
        positions = self._topics.subscriptions.groups.positions
        found = await positions.ask(
            lambda keeper, left_s: survey(keeper, (), left_s, ours), _COUNT_S
        )
        return sum(end - found.begins[place] for place, end in found.ends.items())

    def _entry(self, name: str, kafka_topic: str) -> str:
        home = namespace_of(name)
        entries = parse_adoptable(self._access.settings.now.adoptable_topics)
        entry = entry_for(entries, home, kafka_topic)
        if not entry:
            raise ForbiddenError(
                f"namespace {home} may not adopt Kafka topic {kafka_topic}: an operator of the "
                f"cluster has to add {home}={kafka_topic} to adoptableTopics"
            )
        return entry

    async def _must_be_free(self, kafka_topic: str) -> None:
        """Raises ConflictError if any scalable topic has it, of whatever tenant."""
        view = self._runtime.view
        homes = [Namespace(each) for tenant in view.tenants() for each in view.namespaces(tenant)]
        names = [name for home in homes for name in view.topics(home)]
        for number, each in enumerate(names):
            topic = view.topic(each)
            parts = topic.segments if topic is not None else ()
            if any(part.legacy_topic == kafka_topic for part in parts):
                raise ConflictError(f"{full_name(each)} has Kafka topic {kafka_topic} already")
            if number % _SEEN_AT_ONCE == _SEEN_AT_ONCE - 1:
                await asyncio.sleep(0)


def _must_be_releasable(name: str, topic: ScalableTopic) -> None:
    """Raises PreconditionError for a topic that was not adopted, and ConflictError."""
    part = topic.legacy
    if part is None:
        raise PreconditionError(f"{full_name(name)} was not adopted: delete it instead")
    if not part.is_active or topic.state is not TopicState.STABLE:
        raise ConflictError(
            f"{full_name(name)} was cut over, or is being: its messages lie in Kafka topic "
            f"{part.legacy_topic} and in segments after it. Give the Kafka topic back first "
            "(--give-back), or delete the topic; then the Kafka topic stays, sealed"
        )
    others = [each.segment_id for each in topic.segments if each is not part]
    if others:
        raise ConflictError(
            f"{full_name(name)} has segments {listed(others)} yet, from before Kafka topic "
            f"{part.legacy_topic} was given back: release it once these are pruned, or delete it, "
            "and their messages with it"
        )


def _must_not_be_refused(seen: admin.AdoptionSurvey) -> None:
    if seen.refusals:
        raise PreconditionError("; ".join(each.sentence for each in seen.refusals))


def _partitioner(found: TopicSurvey) -> str:
    """The name of a partitioner that explains all keys, or all newer ones; "" for none."""
    judgement = found.judgement
    return judgement.partitioners[0].value if judgement.verdict in _CERTAIN else ""
