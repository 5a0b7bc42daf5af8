"""The ways to show credentials that the settings name, in their order.

It imports a way's packages only if the settings name it: a node without authentication needs none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from anabranch.broker.security.credentials import Provider
from anabranch.broker.settings.security import (
    BASIC,
    CERTIFICATE,
    TOKEN,
    AuthenticationFields,
    path_of,
)


def providers_of(settings: AuthenticationFields) -> tuple[Provider, ...]:
    """In order. Raises StartError."""
    return tuple(_MAKERS[method](settings) for method in settings.methods)


def _token(settings: AuthenticationFields) -> Provider:
    from anabranch.broker.security.tokens import token_provider

    return token_provider(settings)


def _certificate(_: AuthenticationFields) -> Provider:
    from anabranch.broker.security.certificates import CertificateProvider

    return CertificateProvider()


def _basic(settings: AuthenticationFields) -> Provider:
    from anabranch.broker.security.basic import BasicProvider

    file = path_of(settings.basic_auth_conf)
    return BasicProvider(file, settings.authentication_files_check_seconds)


_MAKERS: Final[Mapping[str, Callable[[AuthenticationFields], Provider]]] = {
    TOKEN: _token,
    CERTIFICATE: _certificate,
    BASIC: _basic,
}
