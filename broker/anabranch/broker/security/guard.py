"""`AccessGuard`: whether whoever asks may, asked before anything is done. One for both ports.

What may be known of a refusal is in its words: of what a role has nothing to do with, that it is
not there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final

from anabranch.broker.errors import ForbiddenError, NotFoundError
from anabranch.broker.logging import get_logger
from anabranch.broker.security.credentials import CredentialsError, RefusalReason
from anabranch.broker.settings.security import SecurityFields
from anabranch.core.log.state import StateReader
from anabranch.core.log_rate_limit import LogRateLimit
from anabranch.core.security.actions import Need, Right
from anabranch.core.security.authorize import Judgement, authorize
from anabranch.core.security.changes import FoldedGrants
from anabranch.core.security.grants import Grants
from anabranch.core.security.principal import Principal
from anabranch.core.security.resources import ResourceName
from anabranch.wire import clock

_SILENT_S: Final = 10.0  # after a refusal of one role was logged
_KINDS: Final = ("denied", "hidden")

_log = get_logger()


class _DeniedError(ForbiddenError):
    """A refusal of the guard's, with what the log is told of it."""

    told: Mapping[str, object] = {}


class _HiddenError(NotFoundError):
    """The same, of what the role may not know of."""

    told: Mapping[str, object] = {}


class AccessGuard:
    """`state`: what is folded now, of which the grants are part."""

    def __init__(self, settings: SecurityFields, state: Callable[[], StateReader]) -> None:
        self._authorizes = settings.authorization_enabled
        self._superusers = settings.superusers
        self._proxies = settings.proxies
        self._state = state
        self.refused: Counter[str] = Counter(dict.fromkeys(_KINDS, 0))
        self._logged = LogRateLimit(_SILENT_S)

    def must_be_somebody(self, principal: Principal, need: Need) -> None:
        """Raises CredentialsError for somebody who would have to say who they are."""
        if not principal.role and need.right is not Right.PUBLIC:
            raise CredentialsError(
                RefusalReason.MISSING, "say who you are: this node asks everybody who wants that"
            )

    def may(self, principal: Principal, need: Need, on: ResourceName) -> bool:
        """Whether the principal, who is somebody, may; it costs some microseconds."""
        return self._judged(principal, need, on) is Judgement.ALLOWED

    def check(self, principal: Principal, need: Need, on: ResourceName) -> None:
        """Returns if the principal may. Raises ForbiddenError, or NotFoundError for what the
        principal may not know of: those that `note` knows of.
        """
        judged = self._judged(principal, need, on)
        if judged is Judgement.ALLOWED:
            return
        role, wanted = principal.role, wanted_words(need)
        told = {"principal": role, "proxied_by": principal.proxied_by, "method": principal.method}
        told |= {"resource": str(on), "why": f"it needs {wanted}"}
        if judged is Judgement.HIDDEN:
            hidden = _HiddenError(f"{on} does not exist, or is not for {role} to see")
            hidden.told = told
            raise hidden
        denied = _DeniedError(
            f"{role} may not: it needs {wanted} on {on}; ask an administrator for it"
        )
        denied.told = told
        raise denied

    def note(self, error: Exception, request: str, host: str) -> None:
        """Counts an error that a request has ended in, if the guard has raised it; of each role and
        kind one is logged in a while.
        """
        if not isinstance(error, _DeniedError | _HiddenError):
            return
        kind = _KINDS[isinstance(error, _HiddenError)]
        self.refused[kind] += 1
        count = self._logged.due((kind, error.told["principal"]), clock.now())
        if count:
            _log.warning(
                "authorization.refused",
                **error.told,
                reason=kind,
                request=request,
                peer=host,
                count=count,
            )

    def _judged(self, principal: Principal, need: Need, on: ResourceName) -> Judgement:
        if not self._authorizes:
            return Judgement.ALLOWED
        grants = Grants(FoldedGrants(self._state()), self._superusers, self._proxies)
        return authorize(grants, principal, need, on)


def wanted_words(need: Need) -> str:
    """What is needed, for people."""
    if need.right is Right.GRANTED:
        return " or ".join(sorted(need.any_of))
    return {
        Right.TENANT_ADMIN: "the tenant's administrator",
        Right.SUPERUSER: "a superuser",
    }.get(need.right, "nothing")
