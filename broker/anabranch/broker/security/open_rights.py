"""`OpenRights`: rights that were checked once, last as long as a watch or a session, and can be
lost.

A watch, or a consumer's session, is allowed when it is opened, and lasts. So its opener holds an
`OpenRight` for as long. A folded change may touch a role's rights. These are then in doubt, and are
judged anew, a slice of time each. A doubtful right is judged at once before more is told by it. So
nothing is told by a right that the state does not have any more. A change for which 100,000 watches
have to be judged does not hold up the node.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final

from anabranch.broker.errors import OperationError
from anabranch.broker.logging import get_logger
from anabranch.core.log.state import Change
from anabranch.core.log_rate_limit import LogRateLimit
from anabranch.core.security.actions import ANYONE, Need
from anabranch.core.security.principal import NOBODY, Principal
from anabranch.core.security.resources import CLUSTER, ResourceName
from anabranch.core.security.touched import touched_roles
from anabranch.wire import clock

_SLICE_S: Final = 0.005  # of judging, before others have their turn
_SILENT_S: Final = 10.0  # after what one role has lost was logged

Check = Callable[[Principal, Need, ResourceName], None]  # raises OperationError
Lost = Callable[[OperationError], None]

_log = get_logger()


class OpenRight:
    """One that somebody goes on by. `request`: the name of the command that it was asked for by."""

    __slots__ = (
        *("_rights", "host", "is_gone", "is_open", "lost", "need", "on", "principal", "request"),
    )

    def __init__(
        self,
        rights: OpenRights | None,
        principal: Principal,
        need: Need,
        on: ResourceName,
        lost: Lost,
        request: str = "",
        host: str = "",
    ) -> None:
        self._rights = rights
        self.principal = principal
        self.need = need
        self.on = on
        self.lost = lost  # called once, in the event loop, when it is gone
        self.request = request
        self.host = host
        self.is_open = True
        self.is_gone = False

    @property
    def stands(self) -> bool:
        """True if the right is there now; `lost` has been called if an open one is gone."""
        return self._rights is None or self._rights.stands(self)

    def close(self) -> None:
        """Nothing goes on by it any more."""
        if self._rights is not None:
            self._rights.close(self)


def _never(_: OperationError) -> None:
    """Does nothing: a right that is never asked for is never lost."""


UNASKED: Final = OpenRight(None, NOBODY, ANYONE, CLUSTER, _never)
"""The right in a node that checks none."""


class OpenRights:
    """All of a node. `check` raises if the folded state gives no right."""

    def __init__(self, check: Check, now: Callable[[], float] = clock.now) -> None:
        self._check = check
        self._now = now
        self._all: set[OpenRight] = set()
        # The keys are tenant and role, and the role of the proxy that asks for somebody.
        self._open: dict[str, dict[str, dict[OpenRight, None]]] = {}
        self._doubtful: dict[OpenRight, None] = {}
        self._task: asyncio.Task[None] | None = None
        self._logged = LogRateLimit(_SILENT_S)
        self.ended: Counter[str] = Counter()  # that were lost, by request

    def __len__(self) -> int:
        return len(self._all)

    def open(
        self,
        principal: Principal,
        need: Need,
        on: ResourceName,
        lost: Lost,
        *,
        request: str,
        host: str,
    ) -> OpenRight:
        """Opens a right, to be closed. Raises as `check` if the principal lacks it now."""
        self._check(principal, need, on)
        right = OpenRight(self, principal, need, on, lost, request, host)
        self._all.add(right)
        for role in _roles(principal):
            self._open.setdefault(on.tenant, {}).setdefault(role, {})[right] = None
        return right

    def close(self, right: OpenRight) -> None:
        """Closes a right; does nothing if it is not open."""
        if not right.is_open:
            return
        right.is_open = False
        right.lost = _never  # or it would be a circle with what went on by it
        self._all.remove(right)
        self._doubtful.pop(right, None)
        roles = self._open[right.on.tenant]
        for role in _roles(right.principal):
            del roles[role][right]
            if not roles[role]:
                del roles[role]
        if not roles:
            del self._open[right.on.tenant]

    def stands(self, right: OpenRight) -> bool:
        """Judges one that is in doubt, or was closed."""
        if right.is_open:
            if right in self._doubtful:
                del self._doubtful[right]
                self._judge(right)
            return right.is_open
        return not right.is_gone and self._refusal(right) is None

    def folded(self, changes: Iterable[Change]) -> None:
        """The state has changed; called before anything is told by the new one."""
        if not self._open:
            return
        for tenant, roles in touched_roles(changes).items():
            for role, held in self._open.get(tenant, {}).items():
                if roles is None or role in roles:
                    self._doubtful.update(held)
        self._look()

    def replaced(self) -> None:
        """The state was loaded anew."""
        for roles in self._open.values():
            for held in roles.values():
                self._doubtful.update(held)
        self._look()

    def _look(self) -> None:
        if self._doubtful and self._task is None:
            self._task = asyncio.create_task(self._run(), name="rights")
            self._task.add_done_callback(self._ran)

    def _ran(self, task: asyncio.Task[None]) -> None:
        self._task = None
        if task.cancelled():
            return  # with the loop
        if (error := task.exception()) is not None:
            _log.error("node.fault", exc_info=error)
        self._look()  # also at what came into doubt when it was over, and nobody knew yet

    async def _run(self) -> None:
        until = self._now() + _SLICE_S
        while self._doubtful:
            right = next(iter(self._doubtful))
            del self._doubtful[right]
            self._judge(right)
            if self._now() >= until:
                await asyncio.sleep(0)
                until = self._now() + _SLICE_S

    def _judge(self, right: OpenRight) -> None:
        refusal = self._refusal(right)
        if refusal is not None:
            lost = right.lost
            self.close(right)
            right.is_gone = True
            self._note(right, refusal)
            lost(refusal)

    def _refusal(self, right: OpenRight) -> OperationError | None:
        try:
            self._check(right.principal, right.need, right.on)
        except OperationError as error:
            return error.with_traceback(None)  # its frames would hold the caller's, and it
        return None

    def _note(self, right: OpenRight, refusal: OperationError) -> None:
        self.ended[right.request] += 1
        role = right.principal.role
        count = self._logged.due(role, self._now())
        if count:
            _log.info(
                "authorization.revoked",
                principal=role,
                proxied_by=right.principal.proxied_by,
                request=right.request,
                resource=str(right.on),
                why=str(refusal),
                peer=right.host,
                count=count,
            )


def _roles(principal: Principal) -> tuple[str, ...]:
    """Those by whose rights somebody goes on."""
    speaker = principal.proxied_by
    return (principal.role, speaker) if speaker else (principal.role,)
