"""Flags of `anabranch` itself: credentials of its commands, and authorities to trust.

Others on the machine can see a command line. So secrets come from files, and a token from the
environment, too.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import click
from click.core import ParameterSource

if TYPE_CHECKING:  # most commands need none of it, and `--help` should be quick
    from anabranch.access import Credentials, Tls

_F = TypeVar("_F", bound=Callable[..., Any])

TOKEN_VARIABLE: Final = "ANABRANCH_TOKEN"  # noqa: S105 - its name
# This is the setting's variable in commands that have settings, and an option's in others.
KAFKA_PROPERTIES_VARIABLE: Final = "ANABRANCH_KAFKA_PROPERTIES_FILE"
KAFKA_TOKEN_VARIABLE: Final = "ANABRANCH_KAFKA_TOKEN_PROVIDER"  # noqa: S105
_FILE: Final = click.Path(dir_okay=False, path_type=Path)


def _option(flag: str, help_text: str, **more: Any) -> Callable[[_F], _F]:
    variable = "ANABRANCH_" + flag.strip("-").replace("-", "_").upper()
    return click.option(flag, envvar=variable, show_envvar=True, help=help_text, **more)


_OPTIONS: Final = (
    _option(
        "--token-file",
        f"File of the token to show nodes; or itself in {TOKEN_VARIABLE}.",
        type=_FILE,
    ),
    _option("--tls-ca", "File of the authorities to trust; the system's if left.", type=_FILE),
    _option("--tls-cert", "File of a certificate to show nodes.", type=_FILE),
    _option("--tls-key", "File of its key.", type=_FILE),
    click.option(
        "--dangerously-accept-any-host-name",
        is_flag=True,
        help="Take nodes' certificates that are for another host.",
    ),
)


class Access(NamedTuple):
    """The flags as given; a command that asks no nodes ignores their values."""

    token: str | None = None
    token_file: Path | None = None
    tls_ca: Path | None = None
    tls_cert: Path | None = None
    tls_key: Path | None = None
    any_host_name: bool = False

    def credentials(self) -> Credentials | None:
        """Returns the credentials to show; None to show nothing. Raises InvalidInputError,
        UsageError.
        """
        from anabranch.access import Token

        if self.token is not None and self.token_file is not None:
            raise click.UsageError(f"give one of --token-file and {TOKEN_VARIABLE}")
        source = self.token or self.token_file
        return Token(source) if source is not None else None

    def tls(self) -> Tls | None:
        """Returns the authorities to trust, and the certificate, if flags name them.

        Raises InvalidInputError.
        """
        from anabranch.access import Tls

        if not (self.tls_ca or self.tls_cert or self.tls_key or self.any_host_name):
            return None
        return Tls(
            ca_file=self.tls_ca,
            certificate_file=self.tls_cert,
            key_file=self.tls_key,
            dangerously_accept_any_host_name=self.any_host_name,
        )


def access_flags(command: _F) -> _F:
    """Adds the flags; the command takes them as `**given` and hands that to `keep`."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def kafka_flags(command: _F) -> _F:
    """Adds a command's own way to Kafka: `kafka_properties` and `kafka_token_provider`."""
    properties = click.option(
        "--kafka-properties",
        envvar=KAFKA_PROPERTIES_VARIABLE,
        show_envvar=True,
        type=click.Path(path_type=Path),
        help="File or folder of a Kafka client's properties, Java's or librdkafka's.",
    )
    provider = click.option(
        "--kafka-token-provider",
        envvar=KAFKA_TOKEN_VARIABLE,
        show_envvar=True,
        metavar="NAME",
        help="Kafka's tokens: aws, gcp, azure, file:PATH or module:function.",
    )
    return properties(provider(command))


def keep(context: click.Context, given: dict[str, Any]) -> None:
    """Keeps the flags for the command."""
    named = dict(given)
    named["any_host_name"] = named.pop("dangerously_accept_any_host_name")
    token = os.environ.get(TOKEN_VARIABLE) or None
    if context.get_parameter_source("token_file") is ParameterSource.COMMANDLINE:
        token = None  # a flag goes before the environment
    context.obj = Access(token=token, **named)


def access() -> Access:
    """Returns the flags of the command that runs; call it in the thread in which it runs."""
    context = click.get_current_context(silent=True)
    found = None if context is None else context.find_root().obj
    return found if isinstance(found, Access) else Access()
