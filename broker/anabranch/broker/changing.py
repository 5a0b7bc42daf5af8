"""`Changing`: the common part of requests that change something by a record of the log."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from anabranch.broker.proposals import Refusals
from anabranch.broker.runtime import Runtime
from anabranch.broker.settings.current import CurrentSettings
from anabranch.core.log.records import Cause, NamespaceChange, PolicyOp, Record
from anabranch.core.names import Namespace
from anabranch.core.tenants.propose import namespace_change

_R = TypeVar("_R", bound=Record)


class _Versioned(Protocol):
    """A thing of the log, which counts its changes."""

    @property
    def version(self) -> int: ...


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

    def _written(self, kind: Callable[..., _R], before: _Versioned | None, /, **fields: Any) -> _R:
        """The record that updates the thing from `before`; None: that creates it."""
        op = PolicyOp.CREATE if before is None else PolicyOp.UPDATE
        return self._signed(kind, op, before, fields)

    def _deleted(self, kind: Callable[..., _R], before: _Versioned, /, **fields: Any) -> _R:
        """The record that deletes the thing."""
        return self._signed(kind, PolicyOp.DELETE, before, fields)

    def _signed(
        self,
        kind: Callable[..., _R],
        op: PolicyOp,
        before: _Versioned | None,
        fields: dict[str, Any],
    ) -> _R:
        """The record, which says who proposes it, and that people asked for it."""
        return kind(
            proposal_id=self._proposals.new_id(),
            op=op,
            version=1 if before is None else before.version + 1,
            cause=Cause.OPERATOR,
            **self._proposals.actor().signature(),
            **fields,
        )

    def _namespace_change(self, ns: Namespace, op: PolicyOp, **fields: Any) -> NamespaceChange:
        """A change of the namespace as it is. Raises NotFoundError."""
        actor = self._proposals.actor()
        info = self._runtime.namespace(ns)
        return namespace_change(actor, ns, info, op, self._proposals.new_id(), **fields)
