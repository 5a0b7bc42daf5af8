"""The settings of authentication and authorization.

A proxy has only those of authentication, because nodes judge rights.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from anabranch.broker.settings.fields import SettingFields, field
from anabranch.broker.settings.ports import listed_words
from anabranch.core.errors import InvalidInputError
from anabranch.core.security.acls import PrincipalMapping
from anabranch.core.security.principal import is_role

TOKEN, CERTIFICATE = "token", "tls"  # as Pulsar calls them
METHODS: Final = (TOKEN, CERTIFICATE)
_ON: Final = "authenticationEnabled"
_ANONYMOUS: Final = "anonymousUserRole"
_KEYS: Final = ("tokenSecretKey", "tokenPublicKey", "tokenKeySet")
_LOCAL: Final = ("localhost", "127.0.0.1", "::1")
_FILE: Final = re.compile(r"file:(//)?(?=/)")


def is_path(text: str) -> bool:
    """Returns whether it is a file's path or a file's URL, and no other URL nor `data:`.

    >>> is_path("file:///etc/key"), is_path("key.pem"), is_path("https://a/b"), is_path("data:;x")
    (True, True, False, False)
    """
    return bool(text) and (bool(_FILE.match(text)) or ":" not in text)


def path_of(text: str) -> Path:
    """The path that `is_path` has found.

    >>> str(path_of("file:///etc/key"))
    '/etc/key'
    """
    return Path(_FILE.sub("", text))


def _file_fault(value: str) -> str:
    if not value or is_path(value):
        return ""
    return "write the path of a file, or file:///path: secrets are no settings"


def _methods_fault(value: str) -> str:
    strange = [each for each in listed_words(value) if each not in METHODS]
    return f"{strange[0]!r} is none of {', '.join(METHODS)}" if strange else ""


def _roles_fault(roles: list[str]) -> str:
    return next((f"{each!r} is no role" for each in roles if not is_role(each)), "")


def _key_set_fault(value: str) -> str:
    if is_path(value) or not value:
        return ""
    parts = urlsplit(value)
    is_secure = parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in _LOCAL)
    if is_secure and parts.hostname and not parts.username and not parts.password:
        return ""
    return (
        "write the path of a file, or https://host/path: keys from anywhere else could be anybody's"
    )


def _mapping_fault(value: str) -> str:
    try:
        PrincipalMapping(value)
    except InvalidInputError as error:
        return str(error)
    return ""


class TokenFields(SettingFields):
    """A node's and a proxy's, named as in Pulsar's broker.conf.

    No secret is a setting: files are.
    """

    authentication_enabled: bool = field(
        False, description="Whether each request must show credentials."
    )
    token_secret_key: str = field(
        "",
        check=_file_fault,
        is_told=False,
        description="File of the raw secret that signs and verifies tokens.",
    )
    token_public_key: str = field(
        "",
        check=_file_fault,
        is_told=False,
        description="File of the public key that verifies tokens, PEM or DER.",
    )


class AuthenticationFields(TokenFields):
    """A node's own, besides."""

    authentication_providers: str = field(
        "",
        check=_methods_fault,
        description="Accepted credentials, in this order: token, tls (a certificate's name).",
    )
    anonymous_user_role: str = field(
        "",
        check=lambda value: _roles_fault([value] if value else []),
        description="Role of clients without credentials; empty: they are refused.",
    )
    authenticate_metrics_endpoint: bool = field(
        False,
        description="Whether /metrics needs its right; false: it is open, as scrapers have no "
        "token.",
    )
    proxy_roles: str = field(
        "",
        check=lambda value: _roles_fault(listed_words(value)),
        description="Roles (a,b,...) of proxies, which name the role that they ask for.",
    )
    token_key_set: str = field(
        "",
        check=_key_set_fault,
        is_told=False,
        description="File or https:// URL of a set of keys that verify tokens (JWKS), each with a "
        "`kid`; it is read again while the node runs.",
    )
    token_auth_claim: str = field(
        "sub", min_length=1, max_length=255, description="The claim of a token that is the role."
    )
    token_issuer: str = field("", description="Required `iss` of a token; empty: any.")
    token_audience: str = field(
        "", description="Required `aud` of a token, or a part of it; empty: any."
    )
    token_allowed_clock_skew_seconds: float = field(
        0.0, ge=0, le=600, description="Most difference of clocks for a token's times."
    )
    authentication_files_check_seconds: float = field(
        10.0,
        ge=0.1,
        le=86_400,
        description="Time between checks of the files of keys.",
    )

    @property
    def methods(self) -> tuple[str, ...]:
        """The ways to show credentials, in order."""
        return tuple(dict.fromkeys(listed_words(self.authentication_providers)))

    @property
    def proxies(self) -> frozenset[str]:
        """`proxy_roles`, one by one."""
        return frozenset(listed_words(self.proxy_roles))

    def authentication_problems(
        self, *, trusts_certificates: bool
    ) -> Iterator[tuple[tuple[str, ...], str]]:
        """Yields the settings that are missing, or cannot be meant."""
        on = _ON
        if not self.authentication_enabled:
            return
        if not self.methods:
            yield (
                (on, "authenticationProviders"),
                f"{on} needs authenticationProviders: some of {', '.join(METHODS)}",
            )
        for method, has, names in (
            (TOKEN, self._has_token_keys, _KEYS),
            (CERTIFICATE, trusts_certificates, ("tlsTrustCertsFilePath",)),
        ):
            if method in self.methods and not has:
                yield (
                    ("authenticationProviders", *names),
                    f"authenticationProviders has {method}, which needs {' or '.join(names)}",
                )
        if self.token_key_set and not is_path(self.token_key_set):
            yield from self._stranger_s_keys()
        if self.anonymous_user_role in self.proxies:
            yield (
                (_ANONYMOUS, "proxyRoles"),
                f"{_ANONYMOUS} is in proxyRoles: strangers could ask for anybody",
            )

    @property
    def _has_token_keys(self) -> bool:
        return bool(self.token_secret_key or self.token_public_key or self.token_key_set)

    def _stranger_s_keys(self) -> Iterator[tuple[tuple[str, ...], str]]:
        for name, value in (
            ("tokenIssuer", self.token_issuer),
            ("tokenAudience", self.token_audience),
        ):
            if not value:
                yield (
                    ("tokenKeySet", name),
                    (
                        f"tokenKeySet is a URL and {name} is empty: its keys sign others' tokens, "
                        "too; set the value that this cluster's tokens have"
                    ),
                )


class SecurityFields(AuthenticationFields):
    """Authentication and all that depends on it."""

    authorization_enabled: bool = field(False, description="Whether each request needs a right.")
    superuser_roles: str = field(
        "",
        check=lambda value: _roles_fault(listed_words(value)),
        description="Roles (a,b,...) that may do everything.",
    )
    kafka_acls_enabled: bool = field(
        False, description="Whether the leader turns grants into Kafka's ACLs."
    )
    kafka_acls_principal: str = field(
        "User:{role}",
        check=_mapping_fault,
        description="Kafka's principal of a role; `{role}` stands for its name.",
    )
    kafka_acls_owned_elsewhere: str = field(
        "",
        check=lambda value: _roles_fault(listed_words(value)),
        description="Roles (a,b,...; * is any text) whose ACLs on Kafka something else makes; "
        "nodes leave these alone.",
    )
    kafka_acls_interval_seconds: float = field(
        60.0,
        ge=1,
        le=86_400,
        description="Time between the leader's checks of Kafka's ACLs.",
    )

    @property
    def superusers(self) -> frozenset[str]:
        """`superuser_roles`, one by one."""
        return frozenset(listed_words(self.superuser_roles))

    @property
    def principal_mapping(self) -> PrincipalMapping:
        """`kafka_acls_principal` and the roles that nodes make no ACLs of, to be asked."""
        elsewhere = tuple(listed_words(self.kafka_acls_owned_elsewhere))
        return PrincipalMapping(self.kafka_acls_principal, self.proxies, elsewhere)

    def security_problems(
        self, *, trusts_certificates: bool
    ) -> Iterator[tuple[tuple[str, ...], str]]:
        """Yields the settings that are missing, or cannot be meant."""
        if self.authorization_enabled and not self.authentication_enabled:
            yield (
                (_ON, "authorizationEnabled"),
                ("authorizationEnabled needs authenticationEnabled: rights depend on roles"),
            )
        if self.kafka_acls_enabled and not self.authorization_enabled:
            yield (
                ("authorizationEnabled", "kafkaAclsEnabled"),
                (
                    "kafkaAclsEnabled needs authorizationEnabled: else anybody could grant "
                    "themselves what Kafka then lets them do"
                ),
            )
        yield from self.authentication_problems(trusts_certificates=trusts_certificates)
        if self.authorization_enabled and self.anonymous_user_role in self.superusers:
            yield (
                (_ANONYMOUS, "superuserRoles"),
                f"{_ANONYMOUS} is in superuserRoles: strangers could do everything",
            )
