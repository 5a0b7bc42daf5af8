"""`AccessGuard`: checks a principal's right before anything is done. Both ports share one.

A refusal's words tell only as much as the role may know. If the role has nothing to do with a
resource, the refusal says that it is not there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final, Self

from anabranch.broker.errors import (
    ForbiddenError,
    NotFoundError,
    OperationError,
)
from anabranch.broker.logging import get_logger
from anabranch.broker.security.credentials import CredentialsError, RefusalReason
from anabranch.broker.security.open_rights import UNASKED, Lost, OpenRight, OpenRights
from anabranch.broker.settings.security import SecurityFields
from anabranch.core.fold.replica import Replica
from anabranch.core.log_rate_limit import LogRateLimit
from anabranch.core.security.actions import Need, Right
from anabranch.core.security.authorize import Judgement
from anabranch.core.security.judgements import Judgements
from anabranch.core.security.principal import Principal
from anabranch.core.security.resources import ResourceName
from anabranch.core.security.table import EVERYBODY, REST, AccessRule
from anabranch.wire import clock

_SILENT_S: Final = 10.0  # after a refusal of one role was logged
_METRICS: Final = frozenset(("GET /metrics",))

_log = get_logger()


class _GuardError(OperationError):
    """A refusal of the guard's, with its fields for the log."""

    kind = ""
    told: Mapping[str, object] = {}

    def telling(self, told: Mapping[str, object]) -> Self:
        """Itself, to be raised at once: kept in a variable, it would be a circle with its frame."""
        self.told = told
        return self


class _DeniedError(_GuardError, ForbiddenError):
    """The role lacks the right."""

    kind = "denied"


class _HiddenError(_GuardError, NotFoundError):
    """The role may not know of the resource."""

    kind = "hidden"


_KINDS: Final = tuple(each.kind for each in (_DeniedError, _HiddenError))


class AccessGuard:
    """Checks principals' rights by the folded state.

    `state`: the state of now, which has the grants. `note_nobody`: told of each client that would
    have to show credentials, of their kind ("": none), and of its address.
    """

    def __init__(
        self,
        settings: SecurityFields,
        state: Callable[[], Replica],
        note_nobody: Callable[[CredentialsError, str, str], None] = lambda *_: None,
    ) -> None:
        self._authorizes = settings.authorization_enabled
        self._proxies = settings.proxies
        self._judgements = Judgements(settings.superusers, settings.proxies)
        self._opened: frozenset[str] = (
            frozenset() if settings.authenticate_metrics_endpoint else _METRICS
        )
        self._state = state
        self._note_nobody = note_nobody
        self.refused: Counter[str] = Counter(dict.fromkeys(_KINDS, 0))
        self._logged = LogRateLimit(_SILENT_S)
        self.rights = OpenRights(self.check)

    def rule_of(self, request: str) -> AccessRule:
        """Returns a REST route's rule: the table's, or EVERYBODY for a route that the settings
        open.
        """
        return EVERYBODY if request in self._opened else REST[request]

    def must_be_somebody(self, principal: Principal, need: Need) -> None:
        """Raises CredentialsError, which `note` knows of, for somebody who would have to say who
        they are.
        """
        if not principal.role and need.right is not Right.PUBLIC:
            raise CredentialsError(
                RefusalReason.MISSING, "say who you are: this node asks everybody who wants that"
            )

    def may(self, principal: Principal, need: Need, on: ResourceName) -> bool:
        """Returns whether the principal, which has a role, may; it costs a microsecond, or some."""
        return self._judged(principal, need, on) is Judgement.ALLOWED

    def check(
        self, principal: Principal, need: Need, on: ResourceName, what: str = "do that"
    ) -> None:
        """Returns if the principal may. `what`: the act in words, after "may not".

        Raises ForbiddenError, or NotFoundError for a resource that the principal may not know of.
        `note` knows both.
        """
        judged = self._judged(principal, need, on)
        if judged is Judgement.ALLOWED:
            return
        role, wanted = principal.role, wanted_words(need)
        lacking = principal.proxied_by if judged is Judgement.PROXY_DENIED else role
        told = _told(principal, str(on), f"{lacking} needs {wanted}")
        if judged is Judgement.HIDDEN:
            raise _HiddenError(f"{on} does not exist, or is not for {role} to see").telling(told)
        raise _DeniedError(self._denial(principal, judged, what, f"{wanted} on {on}")).telling(told)

    def _denial(self, principal: Principal, judged: Judgement, what: str, wanted: str) -> str:
        """Tells people which principal lacks which right, with the remedy."""
        role, speaker = principal.role, principal.proxied_by
        if judged is Judgement.PROXY_DENIED:
            return (
                f"{speaker}, the proxy that asks for {role}, may not {what}, though {role} may: it "
                f"needs {wanted}, too; ask an administrator for it"
            )
        if role in self._proxies and not speaker:
            return (
                f"{role} may not {what} for itself: it is a proxy by proxyRoles, and has to say "
                f"for whom it asks; they need {wanted}, both"
            )
        return f"{role} may not {what}: it needs {wanted}; ask an administrator for it"

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
        """The right to go on with something until it is closed; `lost` is called when it is gone.

        Raises as `check` does.
        """
        if not self._authorizes:
            return UNASKED
        return self.rights.open(principal, need, on, lost, request=request, host=host)

    def note(self, error: Exception, request: str, host: str) -> None:
        """Counts an error that a request has ended in, if the guard has raised it.

        It logs one of each role and kind in a while.
        """
        if isinstance(error, CredentialsError):
            self._note_nobody(error, "", host)
        if not isinstance(error, _GuardError):
            return
        kind = error.kind
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
        return self._judgements.of(self._state(), principal, need, on)


def _told(principal: Principal, resource: str, why: str) -> dict[str, object]:
    """Returns the log's fields of a refusal."""
    return {
        "principal": principal.role,
        "proxied_by": principal.proxied_by,
        "method": principal.method,
        "resource": resource,
        "why": why,
    }


def wanted_words(need: Need) -> str:
    """Names the right that is needed, for people."""
    if need.right is Right.GRANTED:
        return " or ".join(sorted(need.any_of))
    return {
        Right.TENANT_ADMIN: "the tenant's administrator",
        Right.SUPERUSER: "a superuser",
    }.get(need.right, "nothing")
