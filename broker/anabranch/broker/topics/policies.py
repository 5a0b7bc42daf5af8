"""Auto-scale policies of topics and namespaces: read, set and removed (seed 000)."""

from __future__ import annotations

from collections.abc import Mapping

from anabranch.broker.errors import NotFoundError, PreconditionError
from anabranch.broker.topics.access import Access
from anabranch.core.autoscale_policy import (
    AutoScalePolicy,
    EffectivePolicy,
    Override,
    checked_override,
    override_flat,
    override_of,
    resolve,
)
from anabranch.core.autoscaler import policy_of
from anabranch.core.names import Namespace
from anabranch.core.records import Cause, NamespaceChange, PolicyOp, Record, TopicCause
from anabranch.core.state import NamespaceInfo
from anabranch.core.topic_proposals import topic_change
from anabranch.core.topics import TopicMove


class AutoScalePolicies:
    """The requests of one node. To be used in its event loop; `broker`: what is overridden."""

    def __init__(self, access: Access, broker: AutoScalePolicy, timeout_s: float) -> None:
        self._access = access
        self._requests = access.requests
        self._runtime = access.runtime
        self._broker = broker
        self._timeout_s = timeout_s

    def effective(self, name: str) -> EffectivePolicy:
        """The policy in force for a topic. Raises NotFoundError."""
        topic = self._access.topic(name)
        return policy_of(self._runtime.view, name, topic, self._broker)

    async def of_topic(self, name: str) -> Override:
        """What the topic overrides, by its controller: whoever changes it begins with this.

        Raises NotFoundError and ElsewhereError.
        """
        self._access.topic(name)
        if self._runtime.has_lease:  # else this node tells what it has
            await self._access.control(name, self._requests.deadline(self._timeout_s))
        return override_of(self._access.topic(name).auto_scale)

    async def set_topic(self, name: str, given: Mapping[str, object]) -> None:
        """Replaces all that the topic overrides; nothing given removes it.

        Raises PreconditionError for what would not be a sound policy together with the others.
        """
        override = checked_override(given)
        deadline = self._requests.deadline(self._timeout_s)
        self._access.topic(name)
        await self._access.control(name, deadline)

        def build() -> Record:
            topic = self._access.topic(name)
            self._access.must_control(name)
            if override:
                home = self._runtime.view.namespace(name.rpartition("/")[0])
                above = override_of(home.auto_scale) if home is not None else {}
                self._refuse(resolve(self._broker, above, override))
            return topic_change(
                self._requests.actor(),
                name,
                topic,
                TopicMove.POLICY,
                self._runtime.new_id(),
                TopicCause.OPERATOR,
                auto_scale=override_flat(override),
            )

        await self._requests.settle(build, self._access.refusals(name), deadline)

    def of_namespace(self, ns: Namespace) -> Override:
        """What the namespace overrides for its topics. Raises NotFoundError."""
        return override_of(self._namespace(ns).auto_scale)

    async def set_namespace(self, ns: Namespace, given: Mapping[str, object]) -> None:
        """As `set_topic`, for all topics of a namespace that do not override it themselves."""
        override = checked_override(given)

        def build() -> Record:
            if override:
                self._refuse(resolve(self._broker, override, {}))
            actor = self._requests.actor()
            return NamespaceChange(
                proposal_id=self._runtime.new_id(),
                namespace=ns,
                op=PolicyOp.UPDATE,
                version=self._namespace(ns).version + 1,
                actor=actor.broker,
                session=actor.session,
                cause=Cause.OPERATOR,
                auto_scale=override_flat(override),
            )

        await self._requests.settle(build, {}, self._requests.deadline(self._timeout_s))

    def _namespace(self, ns: Namespace) -> NamespaceInfo:
        found = self._runtime.view.namespace(ns)
        if found is None:
            raise NotFoundError("Namespace does not exist")
        return found

    @staticmethod
    def _refuse(effective: EffectivePolicy) -> None:
        if effective.fault:
            raise PreconditionError(effective.fault)
