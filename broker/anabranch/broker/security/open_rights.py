"""`OpenRights`: rights that were checked once, last as long as a watch or a session, and can be
lost.

A watch, or a consumer's session, is allowed when it is opened, and lasts. So its opener holds an
`OpenRight` for as long. After a folded change of a tenant's rights, all that are open there are
judged anew, a slice of time each. A change for which 100,000 watches have to be judged does not
hold up the node. Before more is told by a right it is judged at once. So nothing is told by a right
that the state does not have any more.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final

from anabranch.broker.errors import OperationError
from anabranch.broker.logging import get_logger
from anabranch.core.entities.permission import PERMISSIONS_PREFIX
from anabranch.core.log.state import Change
from anabranch.core.log_rate_limit import LogRateLimit
from anabranch.core.security.actions import ANYONE, Need
from anabranch.core.security.principal import NOBODY, Principal
from anabranch.core.security.resources import CLUSTER, ResourceName
from anabranch.wire import clock

_SLICE_S: Final = 0.005  # of judging, before others have their turn
_SILENT_S: Final = 10.0  # after what one role has lost was logged
_TENANTS: Final = "tenant:"

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
        self._open: dict[str, dict[OpenRight, None]] = {}  # by tenant
        self._doubtful: dict[OpenRight, None] = {}
        self._task: asyncio.Task[None] | None = None
        self._logged = LogRateLimit(_SILENT_S)
        self.ended: Counter[str] = Counter()  # that were lost, by request

    def __len__(self) -> int:
        return sum(map(len, self._open.values()))

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
        self._open.setdefault(on.tenant, {})[right] = None
        return right

    def close(self, right: OpenRight) -> None:
        """Closes a right; does nothing if it is not open."""
        if not right.is_open:
            return
        right.is_open = False
        right.lost = _never  # or it would be a circle with what went on by it
        self._doubtful.pop(right, None)
        held = self._open[right.on.tenant]
        del held[right]
        if not held:
            del self._open[right.on.tenant]

    def stands(self, right: OpenRight) -> bool:
        """Judges a right. One that was lost does not come back."""
        self._doubtful.pop(right, None)
        if right.is_gone:
            return False
        refusal = self._refusal(right)
        if refusal is not None and right.is_open:
            lost = right.lost
            self.close(right)
            right.is_gone = True
            self._note(right, refusal)
            lost(refusal)
        return refusal is None

    def folded(self, changes: Iterable[Change]) -> None:
        """The state has changed; called before anything is told by the new one."""
        touched = {
            key.partition(":")[2].partition("/")[0]
            for key, _ in (changes if self._open else ())
            if key.startswith((_TENANTS, PERMISSIONS_PREFIX))
        }
        for tenant in touched:
            self._doubtful.update(self._open.get(tenant, {}))
        self._look()

    def replaced(self) -> None:
        """The state was loaded anew."""
        for held in self._open.values():
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
            self.stands(right)
            if self._now() >= until:
                await asyncio.sleep(0)
                until = self._now() + _SLICE_S

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
