"""Tokens for Kafka (SASL/OAUTHBEARER), from a provider: a function, a file or a cloud.

A process keeps one token for each provider, however many clients of Kafka it has. One thread gets
the next token after three quarters of a token's life. librdkafka asks each client's `oauth_cb`
after 80 % of what is left of the life, on a thread of its own, and so finds the next token there.
The thread ends when nobody has asked for long, and begins again with the next question.

librdkafka drops the exceptions of an `oauth_cb`. So a cache keeps the provider's failure, and
`explained` puts it into the error of librdkafka.
"""

from __future__ import annotations

import inspect
import logging
import math
import os
import re
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from anabranch.access import cloud_tokens
from anabranch.access.cloud_tokens import Provider
from anabranch.access.errors import CredentialsError
from anabranch.access.events import log_event
from anabranch.core.errors import InvalidInputError

TokenSource = str | Callable[[], Any]

OAUTH_CB: Final = "oauth_cb"  # confluent-kafka's name
TOKEN_S_MAX: Final = 10.0
_MECHANISM: Final = "OAUTHBEARER"
_UNSAID: Final = "OAuth callback raised exception"  # librdkafka hears no more from confluent-kafka
_OF_LIFE: Final = 0.75
_PAUSE_S_MIN: Final = 0.5
_AGAIN_S: Final = 1.0  # after the first failure in a row; twice as long after each other one
_AGAIN_S_MAX: Final = 10.0
_LOOK_S: Final = 30.0  # the clock may be set, or the machine may sleep
_UNUSED_S_MIN: Final = 30.0  # librdkafka asks every 10 s while there is no token
TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/-]+=*")  # RFC 6750, section 2.1
_EXTENSION: Final = re.compile(r"[A-Za-z]+")  # RFC 7628, section 3.1
_EXTENDED: Final = re.compile(r"[\t\n\r -~]+")
_MILLISECONDS: Final = 1e11  # as seconds, the year 5138
_SAID_MAX: Final = 500
_SECRET: Final = re.compile(r"eyJ[\w.~+/=-]{12,}|[\w.~+/=-]{64,}")


@dataclass(frozen=True, slots=True)
class KafkaToken:
    """`expires_at` is in seconds since 1970."""

    value: str = field(repr=False)
    expires_at: float
    principal: str = ""
    extensions: Mapping[str, str] = field(default_factory=dict)


class TokenCache:
    """The token of one provider. Use it from any thread. It is an `oauth_cb` itself."""

    def __init__(self, name: str, provider: Provider, now: Callable[[], float] = time.time) -> None:
        self.name = name
        self._provider = provider
        self._now = now
        self._changed = threading.Condition()  # for all below
        self._thread: threading.Thread | None = None
        self._token: KafkaToken | None = None
        self._failure = ""
        self._failures = 0  # in a row
        self._outcomes = 0
        self._next_at = 0.0  # by `now`
        self._tried_at = -math.inf  # by time.monotonic, as the next one
        self._used_at = 0.0

    def __repr__(self) -> str:
        return f"TokenCache({self.name!r})"

    def __call__(self, _config: str = "") -> tuple[str, float, str, dict[str, str]]:
        """Returns the token to librdkafka, and never waits. Raises CredentialsError."""
        with self._changed:
            self._use()
            token = self._valid()
            if token is None and not self._failures:
                self._hurry()  # the machine has slept
        if token is None:
            raise CredentialsError(self.why)
        return token.value, token.expires_at, token.principal, dict(token.extensions)

    def wait(self, timeout_s: float = TOKEN_S_MAX) -> KafkaToken:
        """Returns the token, and waits for the first one. Blocks.

        Raises CredentialsError as soon as the provider fails while there is no token.
        """
        end = time.monotonic() + timeout_s
        with self._changed:
            self._use()
            seen = self._outcomes
            if self._valid() is None:
                self._hurry()
            while (token := self._valid()) is None:
                left_s = end - time.monotonic()
                if self._outcomes > seen or left_s <= 0:
                    raise CredentialsError(self.why)
                self._changed.wait(left_s)
        return token

    def refuse(self) -> None:
        """Has the provider asked again soon, because Kafka refuses the token."""
        with self._changed:
            self._hurry()

    @property
    def has_token(self) -> bool:
        """Returns True if there is a token that has not expired."""
        return self._valid() is not None

    @property
    def why(self) -> str:
        """Returns why there is no token, without any token in it."""
        if self._failure:
            return f"the token provider {self.name} fails: {self._failure}"
        return f"the token provider {self.name} has not given a token yet"

    def explained(self, said: str) -> str:
        """Returns the words of librdkafka, with the provider's failure in them."""
        return said.replace(_UNSAID, self.why)

    def _valid(self) -> KafkaToken | None:
        token = self._token
        return token if token is not None and token.expires_at > self._now() else None

    def _use(self) -> None:
        self._used_at = time.monotonic()
        if self._thread is None:
            name = f"kafka-token {self.name}"
            self._thread = threading.Thread(target=self._renew, name=name, daemon=True)
            self._thread.start()

    def _hurry(self) -> None:
        """Has the provider asked soon, if not more than once in a while."""
        pause_s = max(0.0, self._tried_at + _AGAIN_S - time.monotonic())
        self._next_at = min(self._next_at, self._now() + pause_s)
        self._changed.notify_all()

    # On the thread.

    def _renew(self) -> None:
        while True:
            pause_s = self._ask()
            with self._changed:
                while (left_s := self._next_at - self._now()) > 0:
                    self._changed.wait(min(left_s, _LOOK_S))
                unused_s = time.monotonic() - self._used_at
                if unused_s > max(_UNUSED_S_MIN, 2 * pause_s):
                    self._thread = None
                    return

    def _ask(self) -> float:
        """Asks the provider. Returns the seconds until it is asked again."""
        token, failure = None, ""
        try:
            token = checked(self._provider(), self._now())
        except CredentialsError as error:
            failure = str(error)
        except BaseException as error:  # noqa: BLE001 - sys.exit() ends no more than this question
            failure = f"{type(error).__name__}: {error}"
        with self._changed:
            self._outcomes += 1
            self._tried_at = time.monotonic()
            if token is not None:
                pause_s = max(_PAUSE_S_MIN, _OF_LIFE * (token.expires_at - self._now()))
                self._token, self._failure, self._failures = token, "", 0
            else:
                pause_s = min(_AGAIN_S_MAX, _AGAIN_S * 2.0**self._failures)
                self._failure = self._shown(failure)
                self._failures = min(self._failures + 1, 10)
            self._next_at = self._now() + pause_s
            self._changed.notify_all()
        if failure:
            event = "kafka_token.not_renewed"
            log_event(logging.WARNING, event, provider=self.name, why=self._failure)
        return pause_s

    def _shown(self, failure: str) -> str:
        """Returns the words of a provider without what may be a token."""
        known = self._token.value if self._token is not None else ""
        bare = failure.replace(known, "...") if known else failure
        return " ".join(_SECRET.sub("...", bare).split())[:_SAID_MAX].rstrip(". ")


def checked(found: object, now: float) -> KafkaToken:
    """Returns the result of a provider as a token. Raises CredentialsError.

    It is (token, expiry), (token, expiry, principal) or (token, expiry, principal, extensions).
    """
    if not isinstance(found, tuple | list) or not 2 <= len(found) <= 4:
        kind = type(found).__name__
        size = f" of {len(found)}" if isinstance(found, tuple | list) else ""
        raise CredentialsError(
            f"it returned a {kind}{size}: it has to return (token, expiry), and then, if Kafka "
            "wants them, a principal and a dict of extensions"
        )
    parts: list[Any] = [*found, *("", {})[len(found) - 2 :]]
    value, expires_at, principal, extensions = parts
    if not isinstance(value, str) or not TOKEN.fullmatch(value):
        what = "something else" if isinstance(value, str) else f"a {type(value).__name__}"
        raise CredentialsError(f"its token is {what}: it has to be a bare str, without Bearer")
    if not isinstance(principal, str) or "\0" in principal:
        raise CredentialsError("its principal is no str: give a name, or nothing")
    if not isinstance(extensions, Mapping) or not all(map(_is_extension, extensions.items())):
        raise CredentialsError(
            "its extensions are none: give a dict of str, whose names have letters only and are "
            "not auth"
        )
    return KafkaToken(value, _expiry(expires_at, now), principal, dict(extensions))


def _is_extension(item: tuple[object, object]) -> bool:
    name, value = item
    if not isinstance(name, str) or not isinstance(value, str) or name.lower() == "auth":
        return False
    return bool(_EXTENSION.fullmatch(name) and _EXTENDED.fullmatch(value))


def _expiry(found: object, now: float) -> float:
    if isinstance(found, bool) or not isinstance(found, int | float) or not math.isfinite(found):
        raise CredentialsError(
            f"its expiry is a {type(found).__name__}: give seconds since 1970, such as "
            "time.time() + 900 or the timestamp() of a datetime"
        )
    if found >= _MILLISECONDS:
        raise CredentialsError(
            f"its expiry, {found:.0f}, can only be milliseconds: give seconds since 1970, a "
            "thousandth of that"
        )
    if found <= now:
        raise CredentialsError(
            f"its token has expired {now - found:.0f} s ago: give a fresh one, and its expiry in "
            "seconds since 1970"
        )
    return float(found)


_caches: weakref.WeakValueDictionary[object, TokenCache] = weakref.WeakValueDictionary()
_lock = threading.Lock()


def _forget() -> None:
    """A forked process has none of our threads."""
    global _caches, _lock
    _caches, _lock = weakref.WeakValueDictionary(), threading.Lock()


os.register_at_fork(after_in_child=_forget)


class Tokens:
    """The source of a client's tokens: `aws`, `gcp`, `azure`, `file:PATH`, `module:function`, or a
    function that returns (token, expiry).

    `arguments` are those of a cloud. Raises InvalidInputError, also if an extra is missing.
    """

    def __init__(self, source: TokenSource, arguments: Mapping[str, str] | None = None) -> None:
        self._arguments = dict(arguments or {})
        self._source = cloud_tokens.function(source) if isinstance(source, str) else source
        if not callable(self._source) and not isinstance(self._source, str):
            raise InvalidInputError(
                f"a token provider is a function or a name, not a {type(source).__name__}"
            )
        if inspect.iscoroutinefunction(self._source):
            raise InvalidInputError(
                "a token provider is a plain function, because a thread calls it: this one is a "
                "coroutine function"
            )
        self._name = (
            source
            if isinstance(source, str)
            else getattr(source, "__name__", type(source).__name__)
        )
        self._kept: dict[str, TokenCache] = {}  # else a cache would go between two clients

    def __repr__(self) -> str:
        return f"Tokens({self._name!r})"

    def cache(self, bootstrap_servers: str) -> TokenCache:
        """Returns the process's cache for a Kafka. A cloud may read its region in the address.
        Raises InvalidInputError.
        """
        if bootstrap_servers not in self._kept:
            self._kept[bootstrap_servers] = self._shared(bootstrap_servers)
        return self._kept[bootstrap_servers]

    def _shared(self, bootstrap_servers: str) -> TokenCache:
        key: object
        provider: Provider
        if isinstance(self._source, str):
            made = cloud_tokens.provider(self._source, self._arguments, bootstrap_servers)
            provider, key = made, (self._source, tuple(sorted(made.keywords.items())))
        else:
            provider, key = self._source, _hashable(self._source)
        with _lock:
            found = _caches.get(key)
            if found is None:
                found = _caches[key] = TokenCache(self._name, provider)
        return found


def _hashable(source: Callable[[], Any]) -> object:
    try:
        hash(source)
    except TypeError:
        return id(source)  # the cache keeps it alive
    return source


def with_tokens(
    kafka: Mapping[str, Any],
    source: TokenSource | None,
    arguments: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Returns librdkafka's properties with the tokens of a source in them, for `at`.
    Raises InvalidInputError.

    TLS is the default, because whoever reads a token on its way has it.
    """
    if source is None:
        return dict(kafka)
    said = str(kafka.get("sasl.mechanism", kafka.get("sasl.mechanisms", _MECHANISM)))
    protocol = str(kafka.get("security.protocol", "sasl_ssl"))
    if said.upper() != _MECHANISM:
        raise InvalidInputError(f"a token provider is for sasl.mechanism={_MECHANISM}, not {said}")
    if not protocol.lower().startswith("sasl_"):
        raise InvalidInputError(
            f"a token provider wants security.protocol=sasl_ssl, not {protocol}"
        )
    if str(kafka.get("sasl.oauthbearer.method", "default")).lower() != "default":
        raise InvalidInputError(
            "sasl.oauthbearer.method and a token provider are two ways to a token: leave one out"
        )
    scope = {"scope": str(kafka.get("sasl.oauthbearer.scope", ""))}
    tokens = Tokens(source, {**scope, **(arguments or {})})
    bare = {name: value for name, value in kafka.items() if name != "sasl.mechanisms"}
    own = {"security.protocol": protocol, "sasl.mechanism": _MECHANISM, OAUTH_CB: tokens}
    return {**bare, **own}


def at(kafka: Mapping[str, Any], bootstrap_servers: str) -> dict[str, Any]:
    """Returns the properties with the cache of their tokens for that Kafka, if they have any.
    Raises InvalidInputError.
    """
    tokens = kafka.get(OAUTH_CB)
    cache = tokens.cache(bootstrap_servers) if isinstance(tokens, Tokens) else tokens
    return {**kafka, OAUTH_CB: cache} if cache is not None else dict(kafka)
