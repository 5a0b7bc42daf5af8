"""The settings of authentication and authorization.

A proxy has only those of authentication, because nodes judge rights.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from pydantic import BaseModel, Field, field_validator

from anabranch.broker.settings.ports import listed_words
from anabranch.core.errors import InvalidInputError
from anabranch.core.security.acls import PrincipalMapping
from anabranch.core.security.principal import is_role

TOKEN, CERTIFICATE = "token", "tls"  # as Pulsar calls them
METHODS: Final = (TOKEN, CERTIFICATE)
_LOCAL: Final = ("localhost", "127.0.0.1", "::1")
_FILE: Final = re.compile(r"file:(//)?(?=/)")


class TokenFields(BaseModel):
    """A node's and a proxy's, named as in Pulsar's broker.conf.

    No secret is a setting: files are.
    """

    authentication_enabled: bool = Field(
        False, description="Whether each request must show credentials."
    )
    token_secret_key: str = Field(
        "",
        repr=False,
        description="File of the raw secret that signs and verifies tokens.",
    )
    token_public_key: str = Field(
        "",
        repr=False,
        description="File of the public key that verifies tokens, PEM or DER.",
    )

    @field_validator("token_secret_key", "token_public_key")
    @classmethod
    def _files(cls, value: str) -> str:
        if value and not is_path(value):
            raise ValueError("write the path of a file, or file:///path: secrets are no settings")
        return value


class AuthenticationFields(TokenFields):
    """A node's own, besides."""

    authentication_providers: str = Field(
        "",
        description="Accepted credentials, in this order: token, tls (a certificate's name).",
    )
    anonymous_user_role: str = Field(
        "", description="Role of clients without credentials; empty: they are refused."
    )
    authenticate_metrics_endpoint: bool = Field(
        False,
        description="Whether /metrics needs its right; false: it is open, as scrapers have no "
        "token.",
    )
    proxy_roles: str = Field(
        "", description="Roles (a,b,...) of proxies, which name the role that they ask for."
    )
    token_key_set: str = Field(
        "",
        repr=False,
        description="File or https:// URL of a set of keys that verify tokens (JWKS), each with a "
        "`kid`; it is read again while the node runs.",
    )
    token_key_set_trust_certs_file_path: Path | None = Field(
        None,
        description="PEM file of the authorities for a tokenKeySet URL; by default the system's.",
    )
    token_key_set_refresh_seconds: float = Field(
        300.0, ge=1, le=86_400, description="Time between fetches from a URL in tokenKeySet."
    )
    token_key_set_expiry_seconds: float = Field(
        86_400.0,
        ge=10,
        description="Time that keys from a URL in tokenKeySet count after its last answer.",
    )
    token_auth_claim: str = Field(
        "sub", min_length=1, max_length=255, description="The claim of a token that is the role."
    )
    token_issuer: str = Field("", description="Required `iss` of a token; empty: any.")
    token_audience: str = Field(
        "", description="Required `aud` of a token, or a part of it; empty: any."
    )
    token_allowed_clock_skew_seconds: float = Field(
        0.0, ge=0, le=600, description="Most difference of clocks for a token's times."
    )
    authentication_files_check_seconds: float = Field(
        10.0,
        ge=0.1,
        le=86_400,
        description="Time between checks of the files of keys.",
    )

    @field_validator("authentication_providers")
    @classmethod
    def _methods(cls, value: str) -> str:
        for each in listed_words(value):
            if each not in METHODS:
                raise ValueError(f"{each!r} is none of {', '.join(METHODS)}")
        return value

    @field_validator("proxy_roles")
    @classmethod
    def _proxies(cls, value: str) -> str:
        return _checked_roles(value)

    @field_validator("anonymous_user_role")
    @classmethod
    def _role(cls, value: str) -> str:
        if value and not is_role(value):
            raise ValueError(f"{value!r} is no role")
        return value

    @field_validator("token_key_set")
    @classmethod
    def _key_set(cls, value: str) -> str:
        if is_path(value) or not value:
            return value
        parts = urlsplit(value)
        is_secure = parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in _LOCAL)
        if not is_secure or not parts.hostname or parts.username or parts.password:
            raise ValueError(
                "write the path of a file, or https://host/path: keys from anywhere else could be "
                "anybody's"
            )
        return value

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

    authorization_enabled: bool = Field(False, description="Whether each request needs a right.")
    superuser_roles: str = Field("", description="Roles (a,b,...) that may do everything.")
    max_requests_per_second_per_principal: int = Field(
        0,
        ge=0,
        le=10_000_000,
        description="Most requests of one role a second by both ports, and as many at once; 0: any "
        "number.",
    )
    kafka_acls_enabled: bool = Field(
        False, description="Whether the leader turns grants into Kafka's ACLs."
    )
    kafka_acls_principal: str = Field(
        "User:{role}",
        description="Kafka's principal of a role; `{role}` stands for its name.",
    )
    kafka_acls_interval_seconds: float = Field(
        60.0,
        ge=1,
        le=86_400,
        description="Time between the leader's checks of Kafka's ACLs.",
    )

    @field_validator("kafka_acls_principal")
    @classmethod
    def _principal(cls, value: str) -> str:
        try:
            PrincipalMapping(value)
        except InvalidInputError as error:
            raise ValueError(str(error)) from None
        return value

    @field_validator("superuser_roles")
    @classmethod
    def _superusers(cls, value: str) -> str:
        return _checked_roles(value)

    @property
    def superusers(self) -> frozenset[str]:
        """`superuser_roles`, one by one."""
        return frozenset(listed_words(self.superuser_roles))

    @property
    def principal_mapping(self) -> PrincipalMapping:
        """`kafka_acls_principal`, to be asked."""
        return PrincipalMapping(self.kafka_acls_principal, self.proxies)

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


def _checked_roles(value: str) -> str:
    for each in listed_words(value):
        if not is_role(each):
            raise ValueError(f"{each!r} is no role")
    return value


_ON: Final = "authenticationEnabled"
_ANONYMOUS: Final = "anonymousUserRole"
_KEYS: Final = ("tokenSecretKey", "tokenPublicKey", "tokenKeySet")


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
