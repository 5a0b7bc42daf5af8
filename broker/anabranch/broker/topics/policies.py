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
from anabranch.core.records import Cause, NamespaceChange, PolicyOp, TopicChange
from anabranch.core.state import NamespaceInfo
from anabranch.core.topics import ScalableTopic, TopicMove


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
        deadline = self._requests.deadline(self._timeout_s)
        return override_of((await self._access.controlled(name, deadline, reading=True)).auto_scale)

    async def set_topic(self, name: str, given: Mapping[str, object]) -> None:
        """Replaces all that the topic overrides; nothing given removes it.

        Raises PreconditionError for what would not be a sound policy together with the others.
        """
        override = checked_override(given)

        def build(topic: ScalableTopic) -> TopicChange:
            if override:
                home = self._runtime.view.namespace(name.rpartition("/")[0])
                above = override_of(home.auto_scale) if home is not None else {}
                self._refuse(resolve(self._broker, above, override))
            return self._access.proposal(
                name, topic, TopicMove.POLICY, auto_scale=override_flat(override)
            )

        await self._access.change(name, build, self._requests.deadline(self._timeout_s))

    def of_namespace(self, ns: Namespace) -> Override:
        """What the namespace overrides for its topics. Raises NotFoundError."""
        return override_of(self._namespace(ns).auto_scale)

    async def set_namespace(self, ns: Namespace, given: Mapping[str, object]) -> None:
        """As `set_topic`, for all topics of a namespace that do not override it themselves."""
        override = checked_override(given)

        def build() -> NamespaceChange:
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
