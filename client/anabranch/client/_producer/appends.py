"""`Appends`: a producer's batches on their way to Kafka: one request at a time to each broker.

A request takes one batch of every due bucket that its broker leads. So the number of buckets adds
nothing but bytes: no connection, no thread, no request. Messages gather meanwhile, and the next
request takes them.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from anabranch.client._errors import DeliveryError
from anabranch.client._producer.batch import ProducerId, RecordBatch
from anabranch.client._producer.leaders import Leaders, Spawn
from anabranch.client._producer.named import NamedProducer
from anabranch.client._producer.outcomes import MOVED, AppendOutcome, outcome_of, refusal
from anabranch.client._producer.partition_writer import PartitionWriter
from anabranch.client._producer.sender import Sender
from anabranch.client._producer.throttled import Throttled
from anabranch.wire.errors import WireError
from anabranch.wire.kafka import producing
from anabranch.wire.kafka.link import KafkaLinks, LinkLostError
from anabranch.wire.kafka.producing import KafkaNotYetError, ProducedPartition
from anabranch.wire.kafka.protocol import Address
from anabranch.wire.logging import get_logger

_REQUEST_BYTES_MAX: Final = 8 * 1024 * 1024  # bytes of values, roughly
_KAFKA_MS_MAX: Final = 8_000  # Kafka may wait for its followers so long
_ANSWER_S_MAX: Final = 10.0
_AGAIN_S: Final = 0.005
_AGAIN_S_MAX: Final = 0.5

_logger = get_logger(__name__)

Acked = Callable[[PartitionWriter, RecordBatch, ProducedPartition], None]


class Appends:
    """The batches of one sender.

    It calls `acked` for each batch that Kafka has, and `answered` once a request was answered and
    all its consequences are done. `linger_s` is the time in seconds that a batch waits for more
    messages.
    """

    def __init__(
        self,
        sender: Sender[PartitionWriter],
        links: KafkaLinks,
        acked: Acked,
        answered: Callable[[], None],
        spawn: Spawn,
        now: Callable[[], float],
        linger_s: float,
        named: NamedProducer | None = None,
    ) -> None:
        self.throttled = Throttled()
        self.leaders = Leaders(links, spawn, self._leaders_told, now)
        self._sender = sender
        self._links = links
        self._acked = acked
        self._answered = answered
        self._spawn = spawn
        self._now = now
        self._linger_s = linger_s
        self._named = named
        self._loop = asyncio.get_running_loop()
        self._id: ProducerId | None = None
        # The last id of each bucket of an adopted topic: where that is given back, another writer
        # begins at number 0, which Kafka would take for what it has.
        self._numbered: dict[tuple[str, int], ProducerId] = {}
        self._identifying = False
        self._lingering: deque[tuple[float, PartitionWriter]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._look_at = 0.0  # when it rings: uvloop's handles for at once do not tell
        # The writers that have something to send, by leading broker; None: the leader is not known.
        self._due: dict[Address | None, dict[PartitionWriter, None]] = {}
        self._busy: set[Address] = set()
        self._paused: set[PartitionWriter] = set()  # to be tried again in a moment
        self._is_ended = False

    async def start(self, topics: list[str]) -> None:
        """Learns the leaders of those topics, gets a producer id, and connects to the leaders.

        This is best effort: the first append repeats what failed.
        """
        self._identify()
        await self.leaders.ready(topics)
        links = [self._links.link(address) for address in self.leaders.brokers()]
        await asyncio.gather(*[each.connect(_ANSWER_S_MAX) for each in links])

    def end(self) -> None:
        """Sends nothing more."""
        self._is_ended = True
        if self._timer is not None:
            self._timer.cancel()
        self._lingering.clear()
        self._due.clear()

    def begun(self, writer: PartitionWriter) -> None:
        """Has a new batch sent after it has lingered, or at once if another one waits before it."""
        now = self._now()
        if writer.filling is not None and not writer.filling.since:
            writer.filling.since = now
        if writer.full:
            self._make_due(writer)
        self._lingering.append((now + self._linger_s, writer))
        self._look_in(0.0 if writer.full else self._linger_s)

    def hurry(self) -> None:
        """Sends lingering batches now."""
        while self._lingering:
            writer = self._lingering.popleft()[1]
            writer.cut()
            self._make_due(writer)
        self._send_all()

    def go_on(self) -> None:
        """Sends what was held back for the producer's name."""
        if not self._is_ended:
            self._send_all()

    def _look_in(self, after_s: float) -> None:
        """Looks after so many seconds at the latest."""
        at = self._loop.time() + after_s
        if self._timer is not None:
            if self._look_at <= at:
                return
            self._timer.cancel()
        self._look_at = at
        self._timer = self._loop.call_later(after_s, self._send_lingering)

    def _send_lingering(self) -> None:
        self._timer = None
        now = self._now()
        while self._lingering and self._lingering[0][0] <= now:
            self._make_due(self._lingering.popleft()[1])
        if self._lingering:
            self._look_in(max(0.0005, self._lingering[0][0] - now))
        self._send_all()

    # --- which batches are sent -----------------------------------------------------------

    def _make_due(self, writer: PartitionWriter) -> None:
        if writer.has_more and not writer.lost and writer not in self._paused:
            led = self.leaders.of(writer.segment.kafka_topic, writer.bucket)
            if led is not None:
                writer.copies = led.copies
            elif writer.segment.kafka_topic in self.leaders.refused:
                self.leaders.ask([writer.segment.kafka_topic])
            self._due.setdefault(None if led is None else led.address, {})[writer] = None

    def _leaders_told(self) -> None:
        for writer in self._due.get(None, ()):
            code = self.leaders.refused.get(writer.segment.kafka_topic)
            if code is not None:
                self._give_up(writer, refusal(code, ""))
        due, self._due = self._due, {}
        for writers in due.values():  # somebody else may lead them by now
            for writer in writers:
                self._make_due(writer)
        self._send_all()
        self._answered()

    def _send_all(self) -> None:
        for address in list(self._due):
            if address is not None and address not in self._busy:
                self._send(address)

    def _send(self, address: Address) -> None:
        """Sends the batches that are due to that broker, as one request."""
        due, taken, size = self._due.get(address, {}), {}, 0
        named = self._named
        for writer in list(due):
            if size >= _REQUEST_BYTES_MAX:
                break
            if named is not None and not named.may_append(writer.segment.segment_id):
                continue
            if not writer.has_more or writer.lost:
                del due[writer]
            elif self._has_id(writer) and (batch := writer.take()) is not None:
                del due[writer]
                taken[writer] = batch
                size += len(batch.data)
        if not due:
            self._due.pop(address, None)
        if taken and not self._is_ended:
            self._busy.add(address)
            self._spawn(self._append(address, taken))

    def _has_id(self, writer: PartitionWriter) -> bool:
        if writer.producer is None:
            place = writer.segment.kafka_topic, writer.bucket
            if self._id is not None and self._id in (writer.former, self._numbered.get(place)):
                self._id = None
            if self._id is None:
                self._identify()
            writer.producer = self._id
            if self._id is not None and writer.segment.info.is_legacy:
                self._numbered[place] = self._id
        return writer.producer is not None

    def _identify(self) -> None:
        if not self._identifying:
            self._identifying = True
            self._spawn(self._get_id())

    async def _get_id(self) -> None:
        pause_s = _AGAIN_S
        try:
            while not self._is_ended:
                try:
                    ask = (
                        self._links.producer_id if self._named is None else self._named.producer_id
                    )
                    self._id = ProducerId(*await ask(_ANSWER_S_MAX))
                    return
                except (OSError, KafkaNotYetError) as error:
                    _logger.debug("producer.id_not_told", why=str(error))
                except WireError as error:
                    self._reject_all(str(error))
                    pause_s = _AGAIN_S_MAX
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, _AGAIN_S_MAX)
        finally:
            self._identifying = False
            self._send_all()

    def _reject_all(self, why: str) -> None:
        """Fails the batches that wait for a producer id, because Kafka does not give one."""
        for writers in list(self._due.values()):
            for writer in list(writers):
                if writer.producer is None:
                    self._give_up(writer, why)
        self._answered()

    def _give_up(self, writer: PartitionWriter, why: str) -> None:
        error = DeliveryError(f"a message to {writer.where}: {why}")
        self._sender.give_up(writer, why, error)

    # --- what becomes of them -------------------------------------------------------------

    async def _append(self, address: Address, taken: dict[PartitionWriter, RecordBatch]) -> None:
        places = {(writer.segment.kafka_topic, writer.bucket): writer for writer in taken}
        batches: dict[str, list[tuple[int, bytes | bytearray]]] = {}
        for (topic, bucket), writer in places.items():
            batches.setdefault(topic, []).append((bucket, taken[writer].data))
        throttle_s, in_doubt = 0.0, True
        try:
            body = producing.produce_request(batches, _KAFKA_MS_MAX)
            reader = await self._links.link(address).send(
                producing.PRODUCE, producing.PRODUCE_VERSION, body, _ANSWER_S_MAX
            )
            found = producing.read_produced(reader)
            throttle_s = found.throttle_ms / 1000
            self.throttled.note(self._now(), throttle_s)
            for produced in found.partitions:
                told = places.pop((produced.topic, produced.partition), None)
                if told is not None and told.trying is taken[told]:
                    self._take(told, taken[told], produced)
        except (OSError, WireError) as error:
            in_doubt = not isinstance(error, LinkLostError) or error.was_written
            self.leaders.forget_broker(address)
            for writer in self._due.pop(address, ()):  # else it waits as long once more
                self._make_due(writer)
        finally:
            for writer in places.values():  # Kafka did not answer for these
                if writer.trying is taken[writer]:
                    self._try_again(writer, in_doubt)
            if throttle_s > 0 and not self._is_ended:
                self._loop.call_later(throttle_s, self._free, address)
            else:
                self._busy.discard(address)
            self._go_on_with(taken)

    def _go_on_with(self, writers: Iterable[PartitionWriter]) -> None:
        """Sends the messages that these writers have gathered meanwhile."""
        if self._is_ended:
            return
        self._sender.advance()
        now = self._now()
        for writer in writers:
            filling = writer.filling
            has_lingered = filling is not None and filling.since + self._linger_s <= now
            if has_lingered or writer.full or writer.trying is not None:
                self._make_due(writer)
        self._send_all()
        self._answered()

    def _free(self, address: Address) -> None:
        """Notes that Kafka listens to us again."""
        self._busy.discard(address)
        if not self._is_ended:
            self._send_all()

    def _take(
        self, writer: PartitionWriter, batch: RecordBatch, produced: ProducedPartition
    ) -> None:
        code = produced.error
        if code in MOVED:
            self.leaders.forget(writer.segment.kafka_topic)
        match outcome_of(code):
            case AppendOutcome.STORED:
                writer.acked()
                self._acked(writer, batch, produced)
            case AppendOutcome.SEALED:
                self._sender.refused(writer, self._now())
            case AppendOutcome.NOT_YET:
                self._try_again(writer, in_doubt=False)
            case AppendOutcome.IN_DOUBT:
                self._try_again(writer, in_doubt=True)
            case AppendOutcome.STRANGER if batch.in_doubt:
                # A former leader may lack what was stored since: another one knows better.
                self.leaders.forget(writer.segment.kafka_topic)
                self._try_again(writer, in_doubt=True)
            case AppendOutcome.STRANGER:
                writer.estranged()
            case AppendOutcome.REJECTED:
                self._sender.reject(writer, refusal(code, produced.message))

    def _try_again(self, writer: PartitionWriter, in_doubt: bool) -> None:
        """Tries again after a moment, which grows."""
        tries = writer.trying.tries if writer.trying is not None else 1
        self._sender.unanswered(writer, in_doubt)
        if writer.open and not self._is_ended:
            self._paused.add(writer)
            pause_s = min(_AGAIN_S * 2 ** min(tries - 1, 10), _AGAIN_S_MAX)
            self._loop.call_later(pause_s, self._go_on, writer)

    def _go_on(self, writer: PartitionWriter) -> None:
        self._paused.discard(writer)
        if not self._is_ended:
            self._make_due(writer)
            self._send_all()
