"""The survey of an existing Kafka topic, by questions alone: nothing in Kafka changes.

It asks over connections of its own, because librdkafka does not tell producers, codecs, or the
offsets of many groups. So it needs properties that the SDK's producers need, too.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from functools import partial
from typing import Any, Final, NamedTuple

from anabranch.core.adoption.survey import (
    Growth,
    KnownProducers,
    SurveyedGroup,
    TopicSetting,
    TopicSurvey,
)
from anabranch.core.adoption.verdict import judge
from anabranch.wire import clock
from anabranch.wire.kafka.committed import CommittedReader
from anabranch.wire.kafka.described import (
    DESCRIBE_CONFIGS,
    DESCRIBE_CONFIGS_VERSION,
    read_settings,
    settings_request,
)
from anabranch.wire.kafka.metadata import (
    METADATA,
    METADATA_VERSION,
    UNTOLD,
    KafkaMetadata,
    TopicMetadata,
    metadata_request,
    read_metadata,
)
from anabranch.wire.kafka.producer_state import (
    LATEST,
    LIST_OFFSETS,
    describe,
    offsets_request,
    read_offsets,
)
from anabranch.wire.kafka.protocol import (
    NO_TAGS,
    Address,
    BrokerConnections,
    KafkaProtocolError,
    ResponseReader,
    array,
    bootstrap_addresses,
    unsupported,
)
from anabranch.wire.kafka.sampling import Samples, Seen, Spans, read_spans, sample

_TRY_S_MAX: Final = 5.0
_GROWTH_S_MIN: Final = 1.0
_LIST_OFFSETS_VERSION: Final = 7  # the first one that tells the newest time; in Kafka 3.0
_EARLIEST: Final = -2
_NEWEST: Final = -3
_LIST_GROUPS: Final = 16
_LIST_GROUPS_VERSION: Final = 5  # tells groups' kinds (KIP-848); in Kafka 3.8
_SHARE: Final = "share"
_OFFSETS_AT_ONCE: Final = 20_000
_NAMED_MAX: Final = 5
_NOT_SHOWN: Final = (3, 29)  # unknown, or no right to describe it
_SETTINGS: Final = (
    "cleanup.policy",
    "compression.type",
    "max.message.bytes",
    "message.timestamp.after.max.ms",
    "message.timestamp.type",
    "min.insync.replicas",
    "retention.bytes",
    "retention.ms",
    "unclean.leader.election.enable",
)
# Delete is for the records up to offset 0, by which a seal waits for a partition's lock.
_NEEDED: Final = {
    "Read": 3,
    "Write": 4,
    "Delete": 6,
    "Describe": 8,
    "DescribeConfigs": 10,
    "AlterConfigs": 11,
}


class _Group(NamedTuple):
    name: str
    kind: str
    state: str


def survey(
    topic: str, servers: str, kafka: Mapping[str, Any], deadline_s: float, at_ms: int
) -> TopicSurvey:
    """Surveys a Kafka topic. `at_ms`: now.

    It blocks for `deadline_s` and the time of one answer, 5 s at most. Parts that Kafka does not
    tell are named in `untold`. Raises OSError if no broker answers, and KafkaProtocolError if there
    is no such topic for this client, or Kafka cannot be asked with these properties.
    """
    if why := unsupported(kafka):
        raise KafkaProtocolError(f"Kafka cannot be surveyed with these properties: {why}")
    try_s = min(_TRY_S_MAX, deadline_s)
    with closing(BrokerConnections(kafka, try_s)) as brokers:
        asked = metadata_request([topic], operations=True)
        first = bootstrap_addresses(servers)
        metadata = brokers.ask_any(first, METADATA, METADATA_VERSION, asked, read_metadata)
        there = metadata.topics.get(topic, _NOT_SHOWN[0])
        if not isinstance(there, TopicMetadata):
            why = "has no such topic, or does not show it to this client: correct the name, or "
            why += "give it the right to describe the topic"
            told = why if there in _NOT_SHOWN else f"does not describe it: error {there}"
            raise KafkaProtocolError(f"topic {topic}: Kafka at {servers} {told}")
        looks = _Looks(topic, brokers, metadata, there, clock.now() + deadline_s)
        with closing(CommittedReader(kafka, try_s)) as reader:
            return _surveyed(looks, reader, at_ms)


class _Looks:
    """The questions about one topic. `untold` collects what was not answered."""

    def __init__(
        self,
        topic: str,
        brokers: BrokerConnections,
        metadata: KafkaMetadata,
        there: TopicMetadata,
        until: float,
    ) -> None:
        self.topic = topic
        self.there = there
        self.until = until
        self.addresses = list(metadata.brokers.values())
        self.untold: dict[str, str] = {}
        self._brokers = brokers
        self._led: dict[Address, list[int]] = {}
        for number, part in sorted(there.partitions.items()):
            if part.leader in metadata.brokers:
                self._led.setdefault(metadata.brokers[part.leader], []).append(number)
        led = sum(map(len, self._led.values()))
        if led < len(there.partitions):
            without = len(there.partitions) - led
            self.untold["partitions"] = f"{without} of them have no leader now: try again"

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Notes that a part is not told, and why, instead of raising."""
        try:
            if clock.now() > self.until:
                raise TimeoutError("the time was over before it")
            yield
        except (OSError, KafkaProtocolError) as error:
            self.untold[name] = str(error) or type(error).__name__

    def offsets(self, at: int, *, stable: bool = False) -> dict[int, tuple[int, int]]:
        """Returns the offset and the time of each partition that is led."""
        found = {}
        for address, numbers in self._led.items():
            places = ((self.topic, number) for number in numbers)
            body = offsets_request(places, at, stable=stable)
            reader = self._brokers.ask(address, LIST_OFFSETS, _LIST_OFFSETS_VERSION, body)
            for each in read_offsets(reader):
                if each.error:
                    raise KafkaProtocolError(
                        f"Kafka does not tell offsets of {self.topic}[{each.partition}]: error "
                        f"{each.error}"
                    )
                found[each.partition] = (each.offset, each.timestamp_ms)
        return found

    def ends(self, at: int, *, stable: bool = False) -> dict[int, int]:
        return {number: offset for number, (offset, _) in self.offsets(at, stable=stable).items()}

    def read(self, spans: Spans, keyed_max: int) -> Seen:
        """Reads records, one leader after another."""
        seen = Seen({}, set(), set())
        for address, numbers in self._led.items():
            here = {number: spans[number] for number in numbers if number in spans}
            ask = partial(self._brokers.ask, address)
            records, codecs, cut = read_spans(ask, self.topic, here, keyed_max, self.until)
            seen.records.update(records)
            seen.codecs.update(codecs)
            seen.cut.update(cut)
        return seen

    def settings(self) -> Mapping[str, TopicSetting]:
        body = settings_request([self.topic], _SETTINGS)
        told = self._brokers.ask_any(
            self.addresses, DESCRIBE_CONFIGS, DESCRIBE_CONFIGS_VERSION, body, read_settings
        ).get(self.topic, 0)
        if isinstance(told, int):
            raise KafkaProtocolError(
                f"Kafka does not tell them: error {told}; it takes the right DescribeConfigs"
            )
        return told

    def producers(self) -> KnownProducers:
        known: dict[int, bool] = {}
        newest = -1
        for address, numbers in self._led.items():
            for told in describe(partial(self._brokers.ask, address), self.topic, numbers):
                if told.error:
                    raise KafkaProtocolError(
                        f"Kafka does not tell them: error {told.error}; it takes the right Read"
                    )
                for state, each in zip(told.states, told.activities, strict=True):
                    ended_or_open = max(each.coordinator_epoch, each.transaction_offset) >= 0
                    known[state.producer_id] = known.get(state.producer_id, False) or ended_or_open
                    newest = max(newest, each.last_ms)
        return KnownProducers(
            count=len(known),
            transactional=sum(known.values()),
            newest_ms=newest if newest >= 0 else None,
        )

    def groups(self) -> list[_Group]:
        """Returns the groups that this client may describe, from all brokers."""
        body = array(()) + array(()) + NO_TAGS
        told = self._brokers.ask_each(
            self.addresses, _LIST_GROUPS, _LIST_GROUPS_VERSION, body, _listed
        )
        if len(told) < len(self.addresses):
            silent = len(self.addresses) - len(told)
            self.untold["groups"] = f"{silent} brokers do not list theirs"
        return [group for each in told.values() for group in each]


def _surveyed(looks: _Looks, reader: CommittedReader, at_ms: int) -> TopicSurvey:
    settings: Mapping[str, TopicSetting] = {}
    starts: dict[int, int] = {}
    ends: dict[int, int] = {}
    samples = Samples([], 0, 0, 0, 0, ())
    producers: KnownProducers | None = None
    committed: dict[_Group, dict[int, int]] = {}
    with looks.part("settings"):
        settings = looks.settings()
    began = clock.now()
    with looks.part("offsets"):
        starts, ends = looks.ends(_EARLIEST), looks.ends(LATEST)
    with looks.part("records"):
        spans = {n: (starts[n], end) for n, end in ends.items() if n in starts}
        samples = sample(looks.read, spans)
    with looks.part("producers"):
        producers = looks.producers()
    with looks.part("groups"):
        committed = _committed(looks, reader)
    growth, ends, held = _growth(looks, began, ends)
    if looks.there.operations == UNTOLD:
        looks.untold["rights"] = "Kafka does not tell them"
    return TopicSurvey(
        topic=looks.topic,
        topic_id=looks.there.topic_id,
        is_internal=looks.there.is_internal,
        at_ms=at_ms,
        partitions=len(looks.there.partitions),
        starts=starts,
        ends=ends,
        judgement=judge(samples.keyed, len(looks.there.partitions), samples.unkeyed),
        records_read=samples.records,
        codecs=samples.codecs,
        registry_keys=samples.registry_keys,
        registry_values=samples.registry_values,
        growth=growth,
        producers=producers,
        open_transactions=held,
        groups=tuple(_group(each, offsets, ends) for each, offsets in sorted(committed.items())),
        settings=settings,
        missing_rights=_missing(looks.there.operations),
        untold=looks.untold,
    )


def _growth(
    looks: _Looks, began: float, before: Mapping[int, int]
) -> tuple[Growth | None, dict[int, int], dict[int, int]]:
    """Looks at the ends again. Returns their growth, the ends, and where transactions are open."""
    growth, ends, held = None, dict(before), {}
    if before:
        with looks.part("growth"):
            now = clock.now()
            time.sleep(max(0.0, min(began + _GROWTH_S_MIN, looks.until) - now))
            ends, seconds = looks.ends(LATEST), clock.now() - began
            # Asked later than the ends, so only a transaction can be the reason for less.
            stable = looks.ends(LATEST, stable=True)
            held = {n: stable[n] for n, end in ends.items() if stable.get(n, end) < end}
            newest = max((at_ms for _, at_ms in looks.offsets(_NEWEST).values()), default=-1)
            growth = Growth(
                records=sum(end - before.get(number, end) for number, end in ends.items()),
                seconds=seconds,
                newest_ms=newest if newest >= 0 else None,
            )
    return growth, ends, held


def _committed(looks: _Looks, reader: CommittedReader) -> dict[_Group, dict[int, int]]:
    """Returns the offsets of each group that has one in the topic."""
    listed = {each.name: each for each in looks.groups()}
    shares = [name for name, each in listed.items() if each.kind == _SHARE]
    if shares:
        looks.untold["share groups"] = (
            f"this Kafka has {len(shares)}: `kafka-share-groups.sh --describe` shows if one "
            "reads the topic"
        )
    names = [name for name in listed if name not in shares]
    places = [(looks.topic, number) for number in looks.there.partitions]
    at_once = max(1, _OFFSETS_AT_ONCE // len(places))
    found: dict[_Group, dict[int, int]] = {}
    silent: list[str] = []
    for start in range(0, len(names), at_once):
        if clock.now() > looks.until:
            raise TimeoutError(f"the time was over after {start} of {len(names)} groups")
        some = names[start : start + at_once]
        told = reader.committed(looks.addresses, dict.fromkeys(some, places))
        for name in some:
            each = told.get(name)
            if each is None or each.error:
                silent.append(name)
            elif offsets := {n: at for (_, n), at in each.offsets.items() if at >= 0}:
                found[listed[name]] = offsets
    if silent:
        named = ", ".join(silent[:_NAMED_MAX]) + ", ..." * (len(silent) > _NAMED_MAX)
        looks.untold["offsets of groups"] = (
            f"{len(silent)} groups have none that is told now: {named}; a transaction may be open, "
            "or the right Describe is missing"
        )
    return found


def _listed(reader: ResponseReader) -> list[_Group]:
    _, error = reader.unpack(">ih")
    if error:
        raise KafkaProtocolError(f"Kafka does not list groups: error {error}")
    found = []
    for _ in range(reader.count()):
        name = reader.text()
        reader.text()  # the kind of protocol that its members speak
        state, kind = reader.text(), reader.text()
        reader.tags()
        found.append(_Group(name, kind.lower(), state))
    return found


def _group(group: _Group, offsets: Mapping[int, int], ends: Mapping[int, int]) -> SurveyedGroup:
    return SurveyedGroup(
        name=group.name,
        kind=group.kind,
        state=group.state,
        offsets=offsets,
        lag=sum(max(0, ends[n] - at) for n, at in offsets.items() if n in ends),
    )


def _missing(operations: int) -> tuple[str, ...]:
    if operations == UNTOLD:
        return ()
    return tuple(name for name, bit in _NEEDED.items() if not operations >> bit & 1)
