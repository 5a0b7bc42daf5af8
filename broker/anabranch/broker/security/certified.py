"""Connections of clients with a certificate: they end when its authority is trusted no more.

TLS verifies a certificate in the hand-shake alone, and Python's `ssl` has no way to do that again.
So when a port's trusted authorities change, `cryptography` verifies the connected clients by the
new ones. It checks only the way from the certificate to an authority: OpenSSL has seen the rest.

It may disconnect a client wrongly, such as one whose intermediate authority is not known here
(Python tells of it from 3.13 on). Such a client connects anew, and OpenSSL decides.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, Final, cast

import msgspec

from anabranch.wire.placed_reads import SharedReads

WHY: Final = "its certificate is trusted no more, as the authorities are others now"


class ShownChain(msgspec.Struct, frozen=True):
    """DER of a client's certificate, and of those between it and an authority, if known."""

    certificate: bytes
    between: tuple[bytes, ...] = ()


class _Connected(msgspec.Struct, frozen=True):
    transport: asyncio.Transport
    chain: ShownChain
    authorities: frozenset[bytes]  # that it was verified by last


class CertifiedConnections:
    """The connections of one port. `context`: its TLS as it is now; `ended`: told each connection's
    end.
    """

    def __init__(
        self, context: Callable[[], ssl.SSLContext], ended: Callable[[str, str], None]
    ) -> None:
        self._context = context
        self._ended = ended
        self._seen: ssl.SSLContext | None = None
        self._connected: dict[CertifiedReads, _Connected] = {}

    def __len__(self) -> int:
        return len(self._connected)

    def made(self, reads: CertifiedReads, transport: asyncio.Transport) -> None:
        """A hand-shake is done; it may be by authorities of before."""
        tls: ssl.SSLObject | None = transport.get_extra_info("ssl_object")
        certificate = tls.getpeercert(binary_form=True) if tls is not None else None
        if tls is not None and certificate:
            chain = ShownChain(certificate, _between(tls))
            by = authorities_of(tls.context)
            self._connected[reads] = _Connected(transport, chain, by)
            if by != authorities_of(self._context()):
                self._seen = None  # to be looked at

    def lost(self, reads: CertifiedReads) -> None:
        """It has ended."""
        self._connected.pop(reads, None)

    async def verify_again(self) -> None:
        """Ends those whose certificates no authority of now has signed."""
        context = self._context()
        if context is self._seen:
            return
        self._seen = context
        now = authorities_of(context)
        doubtful = {r: each for r, each in self._connected.items() if each.authorities != now}
        if not doubtful:
            return
        chains = {each.chain for each in doubtful.values()}
        trusted = await asyncio.to_thread(trusted_of, chains, sorted(now))
        for reads, each in doubtful.items():
            if self._connected.get(reads) is not each:
                continue  # it has ended by itself
            if each.chain in trusted:
                self._connected[reads] = msgspec.structs.replace(each, authorities=now)
                continue
            name = each.transport.get_extra_info("peername")
            self._ended(f"{name[0]}:{name[1]}" if name else "?", WHY)
            each.transport.abort()


class CertifiedReads(SharedReads):
    """A connection with TLS, which says when it is there and when not."""

    def __init__(self, protocol: asyncio.Protocol, of: CertifiedConnections) -> None:
        super().__init__(protocol)
        self._of = of

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._of.made(self, cast(asyncio.Transport, transport))  # uvloop's says not that it is one
        super().connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._of.lost(self)
        super().connection_lost(exc)


def authorities_of(context: ssl.SSLContext) -> frozenset[bytes]:
    """DER of those that it trusts."""
    return frozenset(context.get_ca_certs(binary_form=True))


def trusted_of(chains: Iterable[ShownChain], authorities: Sequence[bytes]) -> set[ShownChain]:
    """Those that one of these authorities has signed, and that have not expired."""
    from cryptography import x509
    from cryptography.x509.verification import (
        Criticality,
        ExtensionPolicy,
        PolicyBuilder,
        Store,
    )

    known = []
    for each in authorities:
        # OpenSSL reads some invalid ones: their clients come again, and it decides.
        with suppress(ValueError, x509.InvalidVersion):
            known.append(x509.load_der_x509_certificate(each))
    if not known:
        return set()
    of_ca = ExtensionPolicy.permit_all().require_present(
        x509.BasicConstraints, Criticality.AGNOSTIC, None
    )
    policy = PolicyBuilder().store(Store(known))
    policy = policy.extension_policies(ca_policy=of_ca, ee_policy=ExtensionPolicy.permit_all())
    verifier = policy.build_client_verifier()

    def is_trusted(chain: ShownChain) -> bool:
        try:
            leaf, *between = (
                x509.load_der_x509_certificate(each) for each in (chain.certificate, *chain.between)
            )
            verifier.verify(leaf, between)
        except Exception:  # noqa: BLE001 - what cannot be verified is not trusted
            return False
        return True

    return {each for each in chains if is_trusted(each)}


def _between(tls: ssl.SSLObject) -> tuple[bytes, ...]:
    chain: Any = getattr(tls, "get_unverified_chain", None)  # from Python 3.13 on
    return tuple(chain()[1:]) if chain is not None else ()
