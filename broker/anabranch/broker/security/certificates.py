"""Client certificates: the role is the common name of the certificate that TLS verified."""

from __future__ import annotations

import ssl
from typing import Any

from anabranch.broker.security.credentials import (
    Certificate,
    Credentials,
    CredentialsError,
    RefusalReason,
    Verified,
)
from anabranch.broker.settings.security import CERTIFICATE
from anabranch.core.security.principal import is_role


class CertificateProvider:
    """Reads the certificate of a connection; TLS has decided already that it can be trusted."""

    method = CERTIFICATE
    goes_by_data = False  # a client may show any beside its certificate
    generation = 0

    def takes(self, shown: Credentials) -> bool:
        if shown.method:
            return shown.method == CERTIFICATE
        return bool(shown.certificate)

    async def start(self) -> None:
        """Depends on nothing."""

    async def stop(self) -> None:
        """Depends on nothing."""

    async def verify(self, shown: Credentials) -> Verified:
        certificate = shown.certificate
        if not certificate:
            raise CredentialsError(
                RefusalReason.MISSING,
                "no certificate was shown: connect to a port with TLS, with a client certificate",
            )
        names = common_names(certificate)
        if len(names) != 1 or not is_role(names[0]):
            raise CredentialsError(
                RefusalReason.ROLE,
                f"the certificate has {len(names)} common names: it needs one, which is the role",
            )
        ends = certificate.get("notAfter")
        return Verified(names[0], ssl.cert_time_to_seconds(ends) if ends else None)


def common_names(certificate: Certificate) -> list[str]:
    """Those of its subject."""
    subject: Any = certificate.get("subject", ())
    return [value for part in subject for name, value in part if name == "commonName"]
