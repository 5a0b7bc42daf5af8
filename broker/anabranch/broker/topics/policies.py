"""The bounds of a topic, and the rules for its own splits and merges (PIP-483)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from anabranch.broker.errors import PreconditionError
from anabranch.broker.topics.controllers.access import TopicAccess
from anabranch.core.autoscale.policy import (
    EffectivePolicy,
    Override,
    checked_override,
    override_flat,
    override_of,
    resolve,
)
from anabranch.core.autoscale.schedule import AutoScaleSettings, policy_here
from anabranch.core.entities.segment import SegmentInfo
from anabranch.core.entities.topic import ScalableTopic, TopicMove
from anabranch.core.log.records import NamespaceChange, PolicyOp, TopicChange
from anabranch.core.names import Namespace, full_name
from anabranch.core.tenants.propose import namespace_change
from anabranch.core.topics.kafka_names import kafka_topic, segment_topic
from anabranch.wire.layouts import LAYOUT_BYTES_MAX

_PROPERTY_BYTES_MAX: Final = 64 * 1024  # all of a topic's, so that its record stays small
_INCARNATION: Final = 10**12  # longer than those to come
# Upper bounds of what a message tells of each (binary/forms.py), but for names.
_SEGMENT_BYTES: Final = 70
_BUCKET_BYTES: Final = 45


def check_properties(properties: Mapping[str, str]) -> None:
    """Raises PreconditionError for what cannot be stored."""
    try:
        size = sum(len(name.encode()) + len(value.encode()) for name, value in properties.items())
    except UnicodeEncodeError as error:
        raise PreconditionError(
            f"the topic's properties hold half a character, {error.object!a:.200}, which cannot "
            "be stored: give whole Unicode characters"
        ) from None
    if size > _PROPERTY_BYTES_MAX:
        raise PreconditionError(
            f"the topic's properties have {size} bytes; at most {_PROPERTY_BYTES_MAX} are kept"
        )


def check_layout(prefix: str, name: str, parts: Iterable[SegmentInfo]) -> None:
    """Raises PreconditionError for a layout that is too large to be told, or assigned, at once."""
    size = layout_bytes_max(prefix, name, parts)
    if size > LAYOUT_BYTES_MAX:
        raise PreconditionError(
            f"the layout of {full_name(name)}, or the assignment of all of it to one consumer, "
            f"would have up to {size} bytes, and clients take {LAYOUT_BYTES_MAX}: let it have "
            "fewer segments or entry buckets, or a shorter name"
        )


def fits_clients(prefix: str, name: str, parts: Iterable[SegmentInfo]) -> bool:
    """Returns whether clients can be told the layout at once, and one can be assigned all."""
    return layout_bytes_max(prefix, name, parts) <= LAYOUT_BYTES_MAX


def layout_bytes_max(prefix: str, name: str, parts: Iterable[SegmentInfo]) -> int:
    """Returns an upper bound of the segments' bytes in a message, with a beginning in each."""
    parts = tuple(parts)
    if not parts:
        return 0
    last = max(parts, key=lambda part: part.segment_id)
    # All names are as long but for the segment's number, whose longest is the last one's.
    names = len(kafka_topic(prefix, name, _INCARNATION, last))
    names += len(segment_topic(name, last).encode())
    return len(parts) * (names + _SEGMENT_BYTES) + sum(_BUCKET_BYTES * p.buckets for p in parts)


class AutoScalePolicies:
    """The requests of one node, for use in its event loop."""

    def __init__(self, access: TopicAccess) -> None:
        self._access = access
        self._proposals = access.proposals
        self._runtime = access.runtime

    @property
    def _settings(self) -> AutoScaleSettings:
        """The settings that namespaces and topics override."""
        return self._access.service.settings.auto_scale

    def effective(self, name: str) -> EffectivePolicy:
        """The policy in force for a topic. Raises NotFoundError."""
        topic = self._access.topic(name)
        return policy_here(self._runtime.view, name, topic, self._settings)

    async def of_topic(self, name: str) -> Override:
        """Returns the topic's overrides, from its controller: a change of them begins with these.

        Raises NotFoundError and ElsewhereError.
        """
        return override_of((await self._access.controlled(name, reading=True)).auto_scale)

    async def set_topic(self, name: str, given: Mapping[str, object]) -> None:
        """Replaces all that the topic overrides; nothing given removes it.

        Raises PreconditionError for what would not be a sound policy together with the others.
        """
        override = checked_override(given)

        def build(topic: ScalableTopic) -> TopicChange:
            if override:
                home = self._runtime.view.namespace(name.rpartition("/")[0])
                above = override_of(home.auto_scale) if home is not None else {}
                self._refuse(resolve(self._settings.policy, above, override))
            return self._access.proposal(
                name, topic, TopicMove.POLICY, auto_scale=override_flat(override)
            )

        await self._access.change(name, build)

    def of_namespace(self, ns: Namespace) -> Override:
        """Returns the namespace's overrides for its topics. Raises NotFoundError."""
        return override_of(self._runtime.namespace(ns).auto_scale)

    def checked(self, given: Mapping[str, object]) -> Override:
        """Returns a namespace's checked overrides.

        Raises InvalidInputError or PreconditionError.
        """
        override = checked_override(given)
        if override:
            self._refuse(resolve(self._settings.policy, override, {}))
        return override

    async def set_namespace(self, ns: Namespace, given: Mapping[str, object]) -> None:
        """Does what `set_topic` does, for all topics of a namespace that do not override it
        themselves.
        """
        override = self.checked(given)

        def build() -> NamespaceChange:
            actor, info = self._proposals.actor(), self._runtime.namespace(ns)
            proposal_id, flat = self._proposals.new_id(), override_flat(override)
            return namespace_change(actor, ns, info, PolicyOp.UPDATE, proposal_id, auto_scale=flat)

        await self._proposals.settle(build, {}, self._access.deadline())

    @staticmethod
    def _refuse(effective: EffectivePolicy) -> None:
        if effective.fault:
            raise PreconditionError(effective.fault)
