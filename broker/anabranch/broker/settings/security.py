"""The settings of who may connect, and of whether it is asked who may do what."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, Field, field_validator

from anabranch.broker.settings.ports import listed_words
from anabranch.core.security.principal import is_role

TOKEN, CERTIFICATE, BASIC = "token", "tls", "basic"  # as Pulsar calls them
METHODS: Final = (TOKEN, CERTIFICATE, BASIC)
_CLASSES: Final = {
    f"org.apache.pulsar.broker.authentication.AuthenticationProvider{name}": method
    for name, method in (("Token", TOKEN), ("Tls", CERTIFICATE), ("Basic", BASIC))
}
_LOCAL: Final = ("localhost", "127.0.0.1", "::1")
_FILE: Final = re.compile(r"file:(//)?(?=/)")


PublicAlgorithm = Literal[
    "", "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"
]


class SecurityFields(BaseModel):
    """Named as in Pulsar's broker.conf where that has them. No secret is a setting: files are."""

    authentication_enabled: bool = Field(
        False, description="Whether whoever asks for something must say who they are."
    )
    authentication_providers: str = Field(
        "",
        description="How they may, in this order: token, tls (the name of a client's certificate), "
        "basic (user and password); or Pulsar's classes of that.",
    )
    anonymous_user_role: str = Field(
        "", description="The role of whoever does not say who they are; empty: they are refused."
    )
    authorization_enabled: bool = Field(
        False, description="Whether whoever asks for something must have the right to it."
    )
    superuser_roles: str = Field("", description="Roles (a,b,...) that may do everything.")
    proxy_roles: str = Field(
        "", description="Roles (a,b,...) of proxies, which may ask for others, whom they name."
    )
    token_secret_key: str = Field(
        "", description="File of the secret that signs tokens and verifies them, as it is."
    )
    token_public_key: str = Field(
        "", description="File of the public key that verifies tokens, PEM or DER."
    )
    token_public_alg: PublicAlgorithm = Field(
        "", description="The algorithm of that key's tokens; empty: any that is the key's own."
    )
    token_key_set: str = Field(
        "",
        description="File or https:// URL of a set of keys that verify tokens (JWKS), each with a "
        "`kid`; it is read again while the node runs.",
    )
    token_key_set_trust_certs_file_path: Path | None = Field(
        None, description="PEM file of the authorities of that URL's server; the system's if left."
    )
    token_key_set_refresh_seconds: float = Field(
        300.0, ge=1, le=86_400, description="Time between two looks at what that URL has."
    )
    token_key_set_expiry_seconds: float = Field(
        86_400.0,
        ge=10,
        description="How long its keys count while it does not answer, since it did last.",
    )
    token_auth_claim: str = Field(
        "sub", min_length=1, max_length=255, description="The claim of a token that is the role."
    )
    token_issuer: str = Field("", description="What a token's `iss` must be; empty: anything.")
    token_audience: str = Field(
        "", description="What a token's `aud` must be, or hold; empty: anything."
    )
    token_allowed_clock_skew_seconds: float = Field(
        0.0, ge=0, le=600, description="How far clocks may differ by which a token's times count."
    )
    basic_auth_conf: str = Field(
        "",
        description="File of users and hashed passwords, as htpasswd -B writes it.",
    )
    authentication_files_check_seconds: float = Field(
        10.0,
        ge=0.1,
        le=86_400,
        description="Time between two looks at whether the files of keys and users have changed.",
    )

    @field_validator("authentication_providers")
    @classmethod
    def _methods(cls, value: str) -> str:
        for each in listed_words(value):
            if _method(each) not in METHODS:
                raise ValueError(f"{each!r} is none of {', '.join(METHODS)}")
        return value

    @field_validator("superuser_roles", "proxy_roles")
    @classmethod
    def _roles(cls, value: str) -> str:
        for each in listed_words(value):
            if not is_role(each):
                raise ValueError(f"{each!r} is no role")
        return value

    @field_validator("anonymous_user_role")
    @classmethod
    def _role(cls, value: str) -> str:
        if value and not is_role(value):
            raise ValueError(f"{value!r} is no role")
        return value

    @field_validator("token_secret_key", "token_public_key", "basic_auth_conf")
    @classmethod
    def _files(cls, value: str) -> str:
        if value and not is_path(value):
            raise ValueError("write the path of a file, or file:///path: secrets are no settings")
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
        """How somebody may say who they are, in order."""
        return tuple(dict.fromkeys(map(_method, listed_words(self.authentication_providers))))

    @property
    def superusers(self) -> frozenset[str]:
        """`superuser_roles`, one by one."""
        return frozenset(listed_words(self.superuser_roles))

    @property
    def proxies(self) -> frozenset[str]:
        """`proxy_roles`, one by one."""
        return frozenset(listed_words(self.proxy_roles))

    def security_problems(
        self, *, trusts_certificates: bool
    ) -> Iterator[tuple[tuple[str, ...], str]]:
        """What is missing, or cannot be meant."""
        on = "authenticationEnabled"
        if self.authorization_enabled and not self.authentication_enabled:
            yield (
                (on, "authorizationEnabled"),
                (
                    "authorizationEnabled needs authenticationEnabled: who may do what depends on "
                    "who it is"
                ),
            )
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
            (BASIC, bool(self.basic_auth_conf), ("basicAuthConf",)),
        ):
            if method in self.methods and not has:
                yield (
                    ("authenticationProviders", *names),
                    f"authenticationProviders has {method}, which needs {' or '.join(names)}",
                )
        if self.token_key_set and not is_path(self.token_key_set):
            yield from self._stranger_s_keys()
        both = self.superusers & self.proxies
        if both:
            yield (
                ("superuserRoles", "proxyRoles"),
                (
                    f"{', '.join(sorted(both))} is in superuserRoles and in proxyRoles: give the "
                    "proxy a role of its own, or who steals its token may do everything"
                ),
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
                        f"tokenKeySet is a URL and {name} is empty: what its keys sign is not for "
                        "this cluster alone; say what its tokens must have there"
                    ),
                )


_KEYS: Final = ("tokenSecretKey", "tokenPublicKey", "tokenKeySet")


def is_path(text: str) -> bool:
    """Whether it is a file's path, or its URL, and no other URL nor `data:`.

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


def _method(word: str) -> str:
    return _CLASSES.get(word, word)
