"""`Authenticator`: finds the role of a client by its credentials, for both ports alike.

It asks the providers in their order, and the first that takes the credentials decides. Wrong ones
are refused, even if a later provider might have taken them. It remembers right ones by a keyed hash
of them, until they end or the keys or users that verified them have changed.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from typing import Final

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
from anabranch.broker.security.providers import providers_of
from anabranch.broker.settings.security import AuthenticationFields
from anabranch.core.log_rate_limit import LogRateLimit
from anabranch.core.security.guesses import Guesses, answer_s
from anabranch.core.security.principal import NOBODY, Principal, spoken_for
from anabranch.core.strangers import ExemptAddresses, stranger_of
from anabranch.wire import clock

_REMEMBERED_MAX: Final = 4_096
_VERIFIED_MAX: Final = 3  # times, while what it is verified by changes
_SILENT_S: Final = 10.0  # after one of a kind, of one address, was logged
# These refusals say nothing of the client, or are no guesses.
_NO_GUESSES: Final = (
    *(RefusalReason.MISSING, RefusalReason.BUSY, RefusalReason.GUESSES, RefusalReason.EXPIRED),
    *(RefusalReason.ANOTHER, RefusalReason.PROXY),
)

_log = get_logger()


class _WrongError(CredentialsError):
    """The credentials are wrong, which is noted before the error has to wait."""


class Admitted(msgspec.Struct, frozen=True):
    """An admitted client. `ends_at`: seconds since 1970, when it must show credentials anew; None:
    never.
    """

    principal: Principal
    ends_at: float | None = None


class Authenticator:
    """A node's authenticator. Raises StartError if the settings' files cannot be used."""

    def __init__(
        self,
        settings: AuthenticationFields,
        exempt: tuple[str, ...] = (),
        now: Callable[[], float] = time.time,
    ) -> None:
        self.providers: Sequence[Provider] = providers_of(settings)
        self.refused: Counter[str] = Counter({reason.value: 0 for reason in RefusalReason})
        self.admitted: Counter[str] = Counter({each.method: 0 for each in self.providers})
        self._anonymous = settings.anonymous_user_role
        self._proxies = settings.proxies
        self._guesses = Guesses()
        self._exempt = ExemptAddresses(exempt)
        self._now = now
        self._key = secrets.token_bytes(32)
        self._remembered: OrderedDict[bytes, tuple[int, Verified]] = OrderedDict()
        self._logged = LogRateLimit(_SILENT_S)

    @property
    def methods(self) -> tuple[str, ...]:
        """Those that are taken, in order."""
        return tuple(each.method for each in self.providers)

    @property
    def generation(self) -> int:
        """A number that changes with the keys or users of any provider."""
        found = 0
        for each in self.providers:
            found = found * 31 + each.generation
        return found

    def counts(self, admitted: Admitted, generation: int) -> bool:
        """Returns whether an admission of that generation still counts."""
        ends_at = admitted.ends_at
        return (ends_at is None or self._now() < ends_at) and generation == self.generation

    async def start(self) -> None:
        """Follows the keys and users until `stop`."""
        for each in self.providers:
            await each.start()

    async def stop(self) -> None:
        """Follows nothing any more."""
        for each in self.providers:
            await each.stop()

    def at_once(self, shown: Credentials, original: str = "") -> Admitted | None:
        """Returns the client if it is remembered, or if it shows nothing and need not; else None.

        Raises CredentialsError for a client that speaks for another and may not.
        """
        provider = self._provider(shown)
        if provider is None:
            if shown.method or shown.data:
                return None
            return self._nobody(original)
        found = self._known(provider, shown)
        return self._as(found, provider.method, original) if found is not None else None

    async def admit(self, shown: Credentials, host: str, original: str = "") -> Admitted:
        """Returns the client. Raises CredentialsError, late if an address has guessed too often.

        `original`: the role that it asks for, if it is a proxy.
        """
        provider = self._provider(shown)
        try:
            if provider is None and not shown.method and not shown.data:
                return self._nobody(original)
            if provider is None:
                raise CredentialsError(
                    RefusalReason.METHOD,
                    f"this node takes {', '.join(self.methods)}, and nothing else, to say who one "
                    "is",
                )
            found = self._known(provider, shown) or await self._tried(provider, shown, host)
            admitted = self._as(found, provider.method, original)
        except _WrongError:
            raise
        except CredentialsError as error:
            self.note(error, shown.method, host)
            raise
        self.admitted[provider.method] += 1
        return admitted

    async def _tried(self, provider: Provider, shown: Credentials, host: str) -> Verified:
        """Verifies credentials that are not remembered."""
        stranger = "" if self._exempt.holds(host) else stranger_of(host)
        if stranger and not self._guesses.begin(stranger, clock.now()):
            raise CredentialsError(
                RefusalReason.GUESSES,
                "your address has shown too many wrong credentials of late; try again in a minute",
            )
        wait_s = 0.0
        try:
            found = await _verified(provider, shown)
            if self._is_over(found):
                raise CredentialsError(RefusalReason.EXPIRED, "the credentials have expired")
        except CredentialsError as error:
            self.note(error, shown.method, host)
            if stranger and error.kind not in _NO_GUESSES:
                wait_s = self._guesses.was_wrong(stranger, clock.now())
            kind, reason = error.kind, error.reason
        else:
            self._remember(provider, shown, found)
            return found
        finally:
            if stranger:  # also of who is gone meanwhile: else leaving would make guessing quick
                asyncio.get_running_loop().call_later(wait_s, self._guesses.end, stranger)
        await asyncio.sleep(answer_s(wait_s))
        raise _WrongError(kind, reason)

    def _provider(self, shown: Credentials) -> Provider | None:
        return next((each for each in self.providers if each.takes(shown)), None)

    def _nobody(self, original: str) -> Admitted:
        if not self._anonymous:
            return Admitted(NOBODY)
        return self._as(Verified(self._anonymous), "anonymous", original)

    def _as(self, found: Verified, method: str, original: str) -> Admitted:
        role = found.role
        if not original:
            return Admitted(Principal(role, method=method), found.ends_at)
        spoken = spoken_for(Principal(role, method=method), original, self._proxies)
        if spoken is None:
            raise CredentialsError(
                RefusalReason.PROXY,
                "only a proxy by proxyRoles may ask for somebody else, and for no other proxy",
            )
        return Admitted(spoken, found.ends_at)

    # --- credentials that were right before ---------------------------------------------

    def _mark(self, shown: Credentials) -> bytes:
        return hashlib.blake2b(
            shown.method.encode() + b"\0" + shown.data, key=self._key, digest_size=32
        ).digest()

    def _known(self, provider: Provider, shown: Credentials) -> Verified | None:
        if not provider.goes_by_data or len(shown.data) > CREDENTIAL_BYTES_MAX:
            return None
        mark = self._mark(shown)
        known = self._remembered.get(mark)
        if known is None:
            return None
        generation, found = known
        if generation != provider.generation or self._is_over(found):
            del self._remembered[mark]
            return None
        return found

    def _remember(self, provider: Provider, shown: Credentials, found: Verified) -> None:
        if provider.goes_by_data:
            while len(self._remembered) >= _REMEMBERED_MAX:
                self._remembered.popitem(last=False)
            self._remembered[self._mark(shown)] = provider.generation, found

    def _is_over(self, found: Verified) -> bool:
        return found.ends_at is not None and self._now() >= found.ends_at

    # --- credentials that were wrong ----------------------------------------------------

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


async def _verified(provider: Provider, shown: Credentials) -> Verified:
    """Verifies credentials by the keys or users that exist at the end of the check, not by former
    ones.

    Raises CredentialsError.
    """
    for _ in range(_VERIFIED_MAX):
        generation = provider.generation
        found = await provider.verify(shown)
        if provider.generation == generation:
            return found
    raise CredentialsError(RefusalReason.BUSY, "the keys or users change all the time; try again")
