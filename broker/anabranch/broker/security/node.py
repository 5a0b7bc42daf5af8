"""A node's own security: authentication and rights at both ports."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from ipaddress import ip_address
from typing import Final

from anabranch.broker.logging import get_logger
from anabranch.broker.metrics.registry import Metrics
from anabranch.broker.security.admission import (
    WireAdmission,
    measure_authentication,
    warn_of_plain_ports,
)
from anabranch.broker.security.authenticator import Authenticator
from anabranch.broker.security.guard import AccessGuard
from anabranch.broker.settings import Settings
from anabranch.core.fold.replica import Replica

_REACHES: Final = "anybody who reaches this node's ports"

_log = get_logger()


class NodeSecurity:
    """A node's security. `state`: the folded state of now.

    Raises StartError if the settings' files cannot be used.
    """

    def __init__(self, settings: Settings, state: Callable[[], Replica]) -> None:
        self.authenticator = Authenticator(settings)
        self.guard = AccessGuard(settings, state, self.authenticator.note)
        self.admission = WireAdmission(self.authenticator)
        self._is_plain = bool(settings.web_url or settings.service_url)

    async def start(self) -> None:
        """Follows keys until `stop`."""
        await self.authenticator.start()
        self.admission.start()
        if self._is_plain:
            warn_of_plain_ports(self.authenticator, "webServicePort", "brokerServicePort")

    async def stop(self) -> None:
        """Follows nothing any more."""
        await self.admission.stop()
        await self.authenticator.stop()


def node_security(settings: Settings, state: Callable[[], Replica]) -> NodeSecurity | None:
    """Returns the security that the settings ask for; None if requests need no credentials.

    Raises StartError.
    """
    _warn_if_open(settings)
    return NodeSecurity(settings, state) if settings.authentication_enabled else None


def _warn_if_open(settings: Settings) -> None:
    """Says that anybody may do everything, but for a node that this machine alone can reach."""
    if settings.authorization_enabled or _is_loopback(settings.bind_address):
        return
    who, more = (_REACHES, "authenticationEnabled and authorizationEnabled")
    if settings.authentication_enabled:
        who, more = (f"{_REACHES} and says who they are", "authorizationEnabled")
    _log.warning(
        "security.open",
        why=f"{who} may do everything",
        remedy=f"set {more} (docs/security.md), or let nobody but friends reach it",
    )


def _is_loopback(address: str) -> bool:
    try:
        return ip_address(address.strip("[]")).is_loopback
    except ValueError:
        return address == "localhost"


def measure_security(security: NodeSecurity | None, metrics: Metrics) -> None:
    """Registers metrics of security; none without `security`: requests need no credentials."""
    nobody: Mapping[str, int] = {}
    measure_authentication(security.authenticator if security is not None else None, metrics)
    metrics.totals(
        "anabranch_authorization_refusals",
        "Requests without a right; hidden: answered as not there.",
        "reason",
        lambda: nobody if security is None else security.guard.refused,
    )
    metrics.totals(
        "anabranch_authorization_revocations",
        "Watches and consumers' sessions ended by the loss of their right.",
        "command",
        lambda: nobody if security is None else security.guard.rights.ended,
    )
