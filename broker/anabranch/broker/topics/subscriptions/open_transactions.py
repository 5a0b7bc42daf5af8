"""Transactions that keep sealed segments from being read, and ways to end one (KIP-664).

librdkafka tells if one is open: Kafka gives out nothing from the first one's beginning on, and
calls that the end. The producer is known only by questions of Kafka's protocol for which librdkafka
2.16 has no call. So it is not known if Kafka cannot be asked (`can_ask`).

A coordinator ends a transaction that it knows. A producer that begins under its transactional id
aborts its open part, in all partitions, and keeps the former producer out. A transaction that no
coordinator knows hangs, for nothing will ever end it: its partitions are told the end, each by
itself. A coordinator shows a principal only transactions that it has the right to see. So a
transaction that may still live is not called hanging.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import closing
from typing import Final

import msgspec
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource

from anabranch.broker.errors import ConflictError
from anabranch.channel.errors import KafkaRefusedError, KafkaUnreachableError
from anabranch.channel.kafka.connection import KafkaConnection
from anabranch.channel.kafka.offsets import LATEST, PartitionOffset, PartitionOffsets, Place
from anabranch.channel.kafka.propagation import values_of
from anabranch.channel.segments.sealing import is_sealed
from anabranch.wire import clock
from anabranch.wire.kafka.producer_state import ProducerState, describe
from anabranch.wire.kafka.protocol import Address, BrokerConnection, KafkaProtocolError, can_ask
from anabranch.wire.kafka.transactions import KnownTransaction, coordinated, write_abort

_ASKING: Final = "to look for open transactions"
BROKER_S_MAX: Final = 3.0  # of one broker's answers
_CLOSE_MS: Final = 10_000  # the shortest that a transaction of the one that fences may last
_LIVES: Final = "transaction.max.timeout.ms"
_NOT_TOLD: Final = (
    "nodes ask a Kafka with SASL only by PLAIN or SCRAM who has it open; kafka-transactions.sh "
    "describe-producers shows it, and its abort ends it"
)


class HeldBucket(msgspec.Struct, frozen=True):
    """A bucket whose messages are not given out from `start` on, because a transaction is open
    there.

    `producer`: the one that has it open; None if Kafka is not asked. `known`: its coordinator's
    entry; None if none told of it. `unknown`: the reason if not all is known; "" if it is.
    """

    place: Place
    start: int
    producer: ProducerState | None = None
    known: KnownTransaction | None = None
    unknown: str = ""


class _Leaders(msgspec.Struct, frozen=True):
    brokers: Mapping[int, Address]
    of: Mapping[Place, int]


class KafkaTransactions:
    """Blocking questions, each with a deadline, for use by one thread."""

    def __init__(self, connection: KafkaConnection, admin: AdminClient) -> None:
        self._connection = connection
        self._admin = admin
        # It reads committed messages, so the end is the beginning of the first open transaction.
        self._stable = PartitionOffsets(connection, connection.consumer())

    def close(self) -> None:
        """Ends the client that asks where they begin."""
        self._stable.close()

    def find(self, ends: Mapping[Place, int], deadline_s: float) -> list[HeldBucket]:
        """Those that begin below these ends of sealed buckets.

        Raises KafkaRefusedError, or KafkaUnreachableError.
        """
        deadline = clock.now() + deadline_s
        starts = self._starts(ends, deadline)
        if not can_ask(self._connection.security):
            return [HeldBucket(place, at, unknown=_NOT_TOLD) for place, at in starts.items()]
        if not starts:
            return []
        leaders = self._leaders(starts, deadline)
        producers = [
            (place, state)
            for place in starts
            for state in self._producers(place, leaders, deadline)
            if 0 <= state.transaction_start < ends[place]
        ]
        known, silent = self._known({each.producer_id for _, each in producers}, leaders, deadline)
        return [_named(place, each, known, silent) for place, each in producers]

    def find_in_sealed(self, head: str, deadline_s: float) -> list[HeldBucket]:
        """Returns those in all sealed segments whose Kafka topics begin so; else as `find`.

        Transactions come and go in segments that take messages. So Kafka is asked only about
        segments with an open one whether they are sealed.
        """
        deadline = clock.now() + deadline_s
        try:
            topics = self._admin.list_topics(timeout=deadline_s).topics
        except KafkaException as error:
            raise self._connection.explained(error, _ASKING) from None
        places = [
            (name, number)
            for name, topic in topics.items()
            if name.startswith(head)
            for number in topic.partitions
        ]
        with closing(PartitionOffsets(self._connection)) as asked:
            told = asked.ask(places, LATEST, _left_s(deadline))
        ends = {place: at.offset for place, at in told.items() if isinstance(at, PartitionOffset)}
        held = self._starts(ends, deadline)
        sealed = self._sealed({topic for topic, _ in held}, deadline)
        ends = {place: ends[place] for place in held if place[0] in sealed}
        return self.find(ends, _left_s(deadline)) if ends else []

    def _sealed(self, topics: Collection[str], deadline: float) -> set[str]:
        asked = [ConfigResource(ConfigResource.Type.TOPIC, topic) for topic in topics]
        told = self._admin.describe_configs(asked) if asked else {}
        doing = "to tell which segments are sealed"
        try:
            return {
                each.name
                for each in asked
                if is_sealed(values_of(told[each].result(_left_s(deadline))))
            }
        except FutureTimeoutError:
            raise self._connection.unreachable(doing) from None
        except KafkaException as error:
            raise self._connection.explained(error, doing) from None

    def abort(
        self, found: Sequence[HeldBucket], sealed_ms: int, now_ms: int, deadline_s: float
    ) -> list[str]:
        """Ends these, and returns the transactional ids that were fenced for it.

        `sealed_ms`: the time of their segment's seal, after which nothing was written. Raises
        ConflictError for a transaction that may still live; else as `find`.
        """
        deadline = clock.now() + deadline_s
        hanging = [each for each in found if each.known is None]
        if hanging:
            leaders = self._leaders([each.place for each in hanging], deadline)
            self._must_hang(hanging, leaders, now_ms - sealed_ms, now_ms, deadline)
            for each in hanging:
                self._write_end(each, leaders, deadline)
        names = sorted({each.known.transactional_id for each in found if each.known is not None})
        for name in names:
            self._fence(name, deadline)
        return names

    def _starts(self, ends: Mapping[Place, int], deadline: float) -> dict[Place, int]:
        """Returns the offsets from which nothing is given out, if they are before the end."""
        starts = {}
        for place, told in self._stable.ask(ends, LATEST, _left_s(deadline)).items():
            if isinstance(told, PartitionOffset):
                if told.offset < ends[place]:
                    starts[place] = told.offset
            elif told.code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise self._connection.explained(KafkaException(told), _ASKING)
        return starts

    def _leaders(self, places: Iterable[Place], deadline: float) -> _Leaders:
        brokers: dict[int, Address] = {}
        of: dict[Place, int] = {}
        for topic in {topic for topic, _ in places}:
            try:
                told = self._admin.list_topics(topic, timeout=_left_s(deadline))
            except KafkaException as error:
                raise self._connection.explained(error, _ASKING) from None
            brokers |= {number: (str(b.host), b.port) for number, b in told.brokers.items()}
            of |= {(topic, n): each.leader for n, each in told.topics[topic].partitions.items()}
        return _Leaders(brokers, of)

    def _connected(
        self, broker: int | None, leaders: _Leaders, deadline: float
    ) -> BrokerConnection:
        """Raises OSError."""
        if broker is None or broker not in leaders.brokers:
            raise ConnectionAbortedError("no broker leads it")
        left_s = min(BROKER_S_MAX, _left_s(deadline))
        return BrokerConnection(leaders.brokers[broker], self._connection.security, left_s)

    def _producers(
        self, place: Place, leaders: _Leaders, deadline: float
    ) -> Sequence[ProducerState]:
        doing = f"to tell the producers of {place[0]}[{place[1]}]"
        try:
            with closing(self._connected(leaders.of.get(place), leaders, deadline)) as leader:
                (told,) = describe(leader, place[0], [place[1]])
        except OSError:
            raise self._connection.unreachable(doing) from None
        except KafkaProtocolError as error:
            raise KafkaRefusedError(str(error)) from None
        if told.error:
            raise KafkaRefusedError(
                f"Kafka refused {doing}: {_said(told.error)}; it takes the right to read the topic"
            )
        return told.states

    def _known(
        self, producer_ids: Collection[int], leaders: _Leaders, deadline: float
    ) -> tuple[dict[int, KnownTransaction], str]:
        """Returns known transactions by producer, and the reason if those are not all."""
        known: dict[int, KnownTransaction] = {}
        silent = ""
        for number in leaders.brokers if producer_ids else ():
            try:
                with closing(self._connected(number, leaders, deadline)) as broker:
                    told = coordinated(broker, producer_ids)
            except (OSError, KafkaProtocolError) as error:
                silent = f"broker {number} of Kafka does not tell what it coordinates: {error}"
            else:
                known |= {each.producer_id: each for each in told}
        return known, silent

    def _must_hang(
        self,
        found: Sequence[HeldBucket],
        leaders: _Leaders,
        sealed_for_ms: int,
        now_ms: int,
        deadline: float,
    ) -> None:
        """Raises ConflictError unless no coordinator can still let these live."""
        for each in found:
            if each.producer is None or each.unknown:
                raise KafkaUnreachableError(f"nothing is ended: {each.unknown}")
        lives_ms = self._lives_ms(next(iter(leaders.brokers)), deadline)
        for each in found:
            # A message's own time is its producer's to say, and may be long ago.
            last_ms = each.producer.last_timestamp_ms if each.producer else now_ms
            quiet_ms = min(now_ms - last_ms, sealed_for_ms)
            if quiet_ms < lives_ms:
                raise ConflictError(
                    "no coordinator of Kafka shows us the transaction, which is one that hangs, or "
                    "one that we have no right to see (Describe on its transactional id). Its last "
                    f"write, or the seal behind it, is {max(0, quiet_ms) // 1000} s old, and Kafka "
                    f"may let one live for {lives_ms // 1000} s ({_LIVES}): try again when that is "
                    "over"
                )

    def _lives_ms(self, broker: int, deadline: float) -> int:
        asked = ConfigResource(ConfigResource.Type.BROKER, str(broker))
        doing = f"to tell {_LIVES}, which takes the right DescribeConfigs on the cluster"
        try:
            told = self._admin.describe_configs([asked])[asked].result(_left_s(deadline))
        except FutureTimeoutError:
            raise self._connection.unreachable(doing) from None
        except KafkaException as error:
            raise self._connection.explained(error, doing) from None
        return int(told[_LIVES].value or 0)

    def _write_end(self, found: HeldBucket, leaders: _Leaders, deadline: float) -> None:
        topic, number = found.place
        doing = f"to end the transaction in {topic}[{number}]"
        if found.producer is None:
            return
        try:
            with closing(self._connected(leaders.of.get(found.place), leaders, deadline)) as leader:
                error = write_abort(leader, found.place, found.producer)
        except OSError:
            raise self._connection.unreachable(doing) from None
        except KafkaProtocolError as failure:
            raise KafkaRefusedError(str(failure)) from None
        if error:
            raise KafkaRefusedError(
                f"Kafka refused {doing}: {_said(error)}; it takes the right ClusterAction or Alter "
                "on the cluster"
            )

    def _fence(self, transactional_id: str, deadline: float) -> None:
        producer = self._connection.producer(
            transactional_id=transactional_id, transaction_timeout_ms=_CLOSE_MS
        )
        try:
            producer.init_transactions(_left_s(deadline))
        except KafkaException as error:
            doing = f"to fence {transactional_id}, which takes the right to write it"
            raise self._connection.explained(error, doing) from None


def _named(
    place: Place, producer: ProducerState, known: Mapping[int, KnownTransaction], silent: str
) -> HeldBucket:
    """Names the bucket's transaction.

    A coordinator's entry of another transaction of the producer says nothing of this one.
    """
    told = known.get(producer.producer_id)
    if told is None or place not in told.partitions:
        return HeldBucket(place, producer.transaction_start, producer, None, silent)
    return HeldBucket(place, producer.transaction_start, producer, told)


def _said(error: int) -> str:
    return str(KafkaError(error).str())


def _left_s(deadline: float) -> float:
    return max(0.0, deadline - clock.now())
