"""`Changing`: the common part of requests that change something by a record of the log."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from anabranch.broker.proposals import Refusals
from anabranch.broker.runtime import Runtime
from anabranch.broker.settings.current import CurrentSettings
from anabranch.core.log.records import Cause, NamespaceChange, PolicyOp, Record
from anabranch.core.names import Namespace
from anabranch.core.tenants.propose import namespace_change

_R = TypeVar("_R", bound=Record)


class Changing:
    """The requests of one node about one kind of thing, for use in its event loop."""

    def __init__(self, runtime: Runtime, settings: CurrentSettings) -> None:
        self._runtime = runtime
        self._proposals = runtime.proposals
        self._settings = settings

    async def _settle(
        self, build: Callable[[], _R | None], refusals: Refusals | None = None
    ) -> _R | None:
        """As `Proposals.settle`, in the time of an operation."""
        deadline = self._proposals.deadline(self._operation_s())
        return await self._proposals.settle(build, refusals or {}, deadline)

    def _operation_s(self) -> float:
        return self._settings.now.operation_timeout_s

    def _signed(self) -> dict[str, Any]:
        """The fields of a record that say who proposes it, and that people asked for it."""
        return {
            "proposal_id": self._proposals.new_id(),
            "cause": Cause.OPERATOR,
            **self._proposals.actor().signature(),
        }

    def _namespace_change(self, ns: Namespace, op: PolicyOp, **fields: Any) -> NamespaceChange:
        """A change of the namespace as it is. Raises NotFoundError."""
        actor = self._proposals.actor()
        info = self._runtime.namespace(ns)
        return namespace_change(actor, ns, info, op, self._proposals.new_id(), **fields)
