"""What a subscription that was put somewhere else must be given, and what not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.core.entities.subscription import SubscriptionOp
from anabranch.core.log.records import SubscriptionChange
from anabranch.core.topics.kafka_names import kafka_group
from simulation.scheduler import ViolationError
from simulation.segment_store import Message

if TYPE_CHECKING:
    from simulation.topic_world import TopicWorld


class SeekChecks:
    """The observer of seeks. A group of Kafka's is a subscription from one seek to the next."""

    def __init__(self, world: TopicWorld) -> None:
        self._world = world
        self._stored: dict[Message, tuple[int, str]] = {}  # when, in which segment
        self._pruned: dict[str, frozenset[str]] = {}  # by group: what was gone before it began
        self._proposed: dict[str, int] = {}  # proposal: what is older than this may be left out
        self._may_leave_out: dict[str, int] = {}  # the same, by group
        self._must_leave_out: dict[str, int] = {}  # by group: what is older than this
        self._oldest: dict[str, int] = {}  # by group: of what was delivered
        self._current: dict[tuple[str, str], str] = {}
        self._begun: dict[str, str] = {}  # by proposal that was accepted: the group
        self._origins: dict[str, str] = {}  # group: the one that the subscription was made with
        self.finished = 0
        self.failed = 0

    def stored(self, message: Message, segment: str) -> None:
        """Kafka has it."""
        self._stored[message] = (self._world.cluster.log_ms(), segment)

    def stored_of(self, topic: str) -> set[Message]:
        """All messages of a topic that are stored, or were."""
        return {each for each in self._stored if each.key.startswith(f"{topic}|")}

    def place_of(self, message: Message) -> str | None:
        """The segment of a message that is stored."""
        return self._stored.get(message, (0, None))[1]

    def proposed(self, record: SubscriptionChange, older_ms: int) -> None:
        """A seek; what is older may be left out, and nothing else."""
        self._proposed[record.proposal_id] = older_ms

    def folded(self, record: SubscriptionChange, pruned: frozenset[str]) -> None:
        """An accepted record, which the truth holds already; segments that its topic had."""
        known = self._world.cluster.checks.truth.subscription(record.topic, record.subscription)
        if known is None:
            return
        name = (record.topic, record.subscription)
        group = kafka_group("", *name, known.created_offset)
        if record.op in (SubscriptionOp.CREATE, SubscriptionOp.RESET):
            self._pruned[group] = pruned
        if record.op is SubscriptionOp.RESET:
            self._begun[record.proposal_id] = group
            self._may_leave_out[group] = self._proposed[record.proposal_id]
            self._origins[group] = self.origin(self._current[name])
        self._current[name] = group

    def origin(self, group: str) -> str:
        """The same for all groups that one subscription has had."""
        return self._origins.get(group, group)

    def may_lack(self, group: str, message: Message) -> bool:
        """Whether the group need not be given a message that is stored."""
        if group not in self._pruned or message not in self._stored:
            return False
        at_ms, segment = self._stored[message]
        return at_ms < self._may_leave_out.get(group, 0) or segment in self._pruned[group]

    def done(self, proposal_id: str, low_ms: int) -> None:
        """Who asked was told that it is done: nothing older is delivered, nor was."""
        group = self._begun[proposal_id]
        self.finished += 1
        self._must_leave_out[group] = low_ms
        if self._oldest.get(group, low_ms) < low_ms:
            raise ViolationError(f"{group} was put at {low_ms}, and older messages were delivered")

    def delivered(self, group: str, message: Message) -> None:
        """Somebody was given a message."""
        at_ms, _ = self._stored[message]
        self._oldest[group] = min(at_ms, self._oldest.get(group, at_ms))
        low_ms = self._must_leave_out.get(group, 0)
        if at_ms < low_ms:
            raise ViolationError(f"{message} of {at_ms} came to {group}, which was put at {low_ms}")
