"""A proxy's own security: who comes by its ports, and for whom nodes are asked what they ask.

A proxy makes sure of who its clients are, as a node does; what they may, nodes judge, who are told
with each request, connection or look-up for whom it is.
"""

from __future__ import annotations

from anabranch.broker.security.admission import WireAdmission, warn_of_plain_ports
from anabranch.broker.security.authenticator import Authenticator
from anabranch.broker.settings.ports import listed_words
from anabranch.broker.settings.proxy import ProxySettings
from anabranch.core.security.principal import Principal, spoken_for


class ProxySecurity:
    """Raises StartError where the settings' files cannot be used."""

    def __init__(self, settings: ProxySettings) -> None:
        exempt = tuple(listed_words(settings.per_ip_limit_exempt_addresses))
        self.authenticator = Authenticator(settings, exempt)
        self.admission = WireAdmission(self.authenticator)
        self._proxies = settings.proxies
        self._is_plain = bool(settings.web_url or settings.service_url)

    async def start(self) -> None:
        """Follows keys and users until `stop`."""
        await self.authenticator.start()
        self.admission.start()
        if self._is_plain:
            warn_of_plain_ports(self.authenticator, "webServicePort", "servicePort")

    async def stop(self) -> None:
        """Follows nothing any more."""
        await self.admission.stop()
        await self.authenticator.stop()

    def asker_of(self, principal: Principal) -> str:
        """For whom nodes are asked what this principal asks.

        "" for another proxy that names nobody: then this one asks as itself, as that one would.
        """
        return "" if principal.role in self._proxies else principal.role

    def may_speak_for(self, principal: Principal, original: str) -> bool:
        """Whether the principal is a proxy that may ask for them."""
        return spoken_for(principal, original, self._proxies) is not None


def proxy_security(settings: ProxySettings) -> ProxySecurity | None:
    """As the settings say; None where nobody has to say who they are. Raises StartError."""
    return ProxySecurity(settings) if settings.authentication_enabled else None
