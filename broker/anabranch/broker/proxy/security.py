"""`ProxySecurity`: a proxy makes sure who its clients are, as a node does.

Nodes judge what each client may do. The proxy tells them for whom it asks, with each link and each
HTTP request.
"""

from __future__ import annotations

from anabranch.broker.security.admission import WireAdmission, warn_of_plain_ports
from anabranch.broker.security.authenticator import Authenticator
from anabranch.broker.settings.proxy import BINARY, WEB, ProxySettings


class ProxySecurity:
    """Raises StartError where the settings' files cannot be used."""

    def __init__(self, settings: ProxySettings) -> None:
        self.authenticator = Authenticator(settings.authentication)
        self.admission = WireAdmission(self.authenticator)
        self._is_plain = bool(settings.url_of(WEB) or settings.url_of(BINARY))

    async def start(self) -> None:
        """Follows the keys until `stop`."""
        await self.authenticator.start()
        self.admission.start()
        if self._is_plain:
            warn_of_plain_ports(self.authenticator, "webServicePort", "servicePort")

    async def stop(self) -> None:
        """Follows nothing any more."""
        await self.admission.stop()
        await self.authenticator.stop()


def proxy_security(settings: ProxySettings) -> ProxySecurity | None:
    """The security of the settings; None where nobody is asked who they are. Raises StartError."""
    return ProxySecurity(settings) if settings.authentication_enabled else None
