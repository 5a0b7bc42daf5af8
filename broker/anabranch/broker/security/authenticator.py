"""`Authenticator`: finds the role of a client by its credentials, for both ports alike.

It asks the providers in their order, and the first that takes the credentials decides. Wrong ones
are refused, even if a later provider might have taken them. It remembers right tokens by a keyed
hash of them, until they end or the keys that verified them have changed.
"""

from __future__ import annotations

import hashlib
import secrets
import ssl
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from anabranch.broker.logging import get_logger
from anabranch.broker.security.credentials import (
    CREDENTIAL_BYTES_MAX,
    Credentials,
    CredentialsError,
    Provider,
    RefusalReason,
    Verified,
)
from anabranch.broker.settings.security import CERTIFICATE, TOKEN, AuthenticationFields
from anabranch.core.log_rate_limit import LogRateLimit
from anabranch.core.security.principal import NOBODY, Principal, is_role, spoken_for
from anabranch.wire import clock

_REMEMBERED_MAX: Final = 4_096
_SILENT_S: Final = 10.0  # after one of a kind, of one address, was logged

_log = get_logger()


class Admitted(msgspec.Struct, frozen=True):
    """An admitted client. `ends_at`: seconds since 1970, when it must show credentials anew; None:
    never.
    """

    principal: Principal
    ends_at: float | None = None


class Authenticator:
    """A node's authenticator. Raises StartError if the settings' files cannot be used."""

    def __init__(
        self, settings: AuthenticationFields, now: Callable[[], float] = time.time
    ) -> None:
        self.providers: Sequence[Provider] = _providers_of(settings)
        self.refused: Counter[str] = Counter({reason.value: 0 for reason in RefusalReason})
        self.admitted: Counter[str] = Counter({each.method: 0 for each in self.providers})
        self._anonymous = settings.anonymous_user_role
        self._proxies = settings.proxies
        self._now = now
        self._key = secrets.token_bytes(32)
        self._remembered: OrderedDict[bytes, tuple[int, Verified]] = OrderedDict()
        self._logged = LogRateLimit(_SILENT_S)

    @property
    def methods(self) -> tuple[str, ...]:
        """Those that are taken, in order."""
        return tuple(each.method for each in self.providers)

    async def start(self) -> None:
        """Follows the keys until `stop`."""
        for each in self.providers:
            await each.start()

    async def stop(self) -> None:
        """Follows nothing any more."""
        for each in self.providers:
            await each.stop()

    async def admit(self, shown: Credentials, host: str, original: str = "") -> Admitted:
        """Returns the client. Raises CredentialsError, which is noted.

        `original`: the role that it asks for, if it is a proxy.
        """
        try:
            found, method = await self._verified(shown)
            admitted = self._as(found, method, original)
        except CredentialsError as error:
            self.note(error, shown.method, host)
            raise
        if method in self.admitted:
            self.admitted[method] += 1
        return admitted

    async def _verified(self, shown: Credentials) -> tuple[Verified, str]:
        """Returns the client by what it shows, and the method."""
        provider = next((each for each in self.providers if each.takes(shown)), None)
        if provider is None and not shown.method and not shown.data:
            return Verified(self._anonymous), "anonymous" if self._anonymous else ""
        if provider is None:
            raise CredentialsError(
                RefusalReason.METHOD,
                f"this node takes {', '.join(self.methods)}, and nothing else, to say who one is",
            )
        if not provider.goes_by_data or len(shown.data) > CREDENTIAL_BYTES_MAX:
            return self._unless_over(await provider.verify(shown)), provider.method
        mark = hashlib.blake2b(shown.data, key=self._key, digest_size=32).digest()
        generation, known = self._remembered.get(mark, (0, None))
        if known is None or generation != provider.generation:
            known = await provider.verify(shown)
            while len(self._remembered) >= _REMEMBERED_MAX:
                self._remembered.popitem(last=False)
            self._remembered[mark] = provider.generation, known
        return self._unless_over(known), provider.method

    def _unless_over(self, found: Verified) -> Verified:
        if found.ends_at is not None and self._now() >= found.ends_at:
            raise CredentialsError(RefusalReason.EXPIRED, "the credentials have expired")
        return found

    def _as(self, found: Verified, method: str, original: str) -> Admitted:
        if not found.role:
            return Admitted(NOBODY)
        own = Principal(found.role, method=method)
        if not original:
            return Admitted(own, found.ends_at)
        spoken = spoken_for(own, original, self._proxies)
        if spoken is None:
            raise CredentialsError(
                RefusalReason.PROXY,
                "only a proxy by proxyRoles may ask for somebody else, and for no other proxy",
            )
        return Admitted(spoken, found.ends_at)

    def note(self, error: CredentialsError, method: str, host: str) -> None:
        """Counts a refused client, and logs one of each kind and address in a while."""
        self.refused[error.kind.value] += 1
        count = self._logged.due((error.kind, host), clock.now())
        if count:
            _log.warning(
                "authentication.refused",
                method=method if method in self.methods else "",
                peer=host,
                reason=error.kind.value,
                why=str(error),
                count=count,
            )


class CertificateProvider:
    """Finds the role by the connection's certificate, which TLS has verified: its common name."""

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
        subject: Any = certificate.get("subject", ())
        names = [value for part in subject for name, value in part if name == "commonName"]
        if len(names) != 1 or not is_role(names[0]):
            raise CredentialsError(
                RefusalReason.ROLE,
                f"the certificate has {len(names)} common names: it needs one, which is the role",
            )
        ends = certificate.get("notAfter")
        return Verified(names[0], ssl.cert_time_to_seconds(ends) if ends else None)


def _providers_of(settings: AuthenticationFields) -> tuple[Provider, ...]:
    """Returns the providers that the settings name, in order. Raises StartError."""
    found: list[Provider] = []
    for method in settings.methods:
        if method == TOKEN:  # its packages are for nodes that take tokens
            from anabranch.broker.security.tokens import token_provider

            found.append(token_provider(settings))
        else:
            found.append(CertificateProvider())
    return tuple(found)
