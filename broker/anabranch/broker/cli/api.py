"""A node's HTTP interface, as the commands use it."""

from __future__ import annotations

from typing import IO, Any, Final
from urllib.parse import quote

import click
import httpx

from anabranch.core.errors import AnabranchError, InvalidInputError

_SECONDS_MAX: Final = 60.0  # a node gives up before: what it has begun, it answers itself
STALE_HEADER: Final = "X-Anabranch-Stale"

URL_VARIABLE: Final = "ANABRANCH_URL"

url_option = click.option(
    "--url",
    default="http://127.0.0.1:8080",
    envvar=URL_VARIABLE,
    show_default=True,
    show_envvar=True,
    help="A node of the cluster; any will do.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
json_lines_option = click.option(
    "--json", "as_json", is_flag=True, help="Print JSON, one object on each line."
)


class UnreachableError(AnabranchError):
    """No node answers at the given address."""


class RefusedError(click.ClickException):
    """The node refused; its reason is the message."""

    exit_code = 1

    def show(self, file: IO[Any] | None = None) -> None:
        """As `main` tells of other errors: it is not the usage that is wrong."""
        click.echo(f"anabranch: {self.format_message()}", file=file, err=file is None)


class Api:
    """Requests to any node; one that sends them on to another (307) is followed."""

    def __init__(self, url: str) -> None:
        self._url = _http(url)
        self.answered_by = self._url  # since the last answer: the node that it was sent on to
        self._client = httpx.Client(timeout=_SECONDS_MAX, follow_redirects=True)

    def get(self, path: str, **query: Any) -> Any:
        """The decoded answer. Raises UnreachableError or RefusedError."""
        return self.send("GET", path, **query)

    def send(self, verb: str, path: str, body: Any = None, **query: Any) -> Any:
        """The decoded answer; None for one without a body. `path` is quoted already.

        Raises UnreachableError or RefusedError.
        """
        try:
            answer = self._client.request(verb, self._url + path, json=body, params=query or None)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise UnreachableError(self._unanswered(error)) from error
        self.answered_by = _node_of(answer.url)
        if answer.headers.get(STALE_HEADER):
            click.echo(
                "anabranch: the node cannot reach the log; its answer may be out of date", err=True
            )
        if answer.is_success and not answer.content:
            return None
        try:
            said = answer.json()
        except ValueError as error:
            raise UnreachableError(
                f"{self._url} answers {answer.status_code} without JSON; is it a node?"
            ) from error
        if answer.is_success:
            return said
        reason = said.get("reason", said) if isinstance(said, dict) else said
        raise RefusedError(f"{answer.status_code}: {reason}")

    def _unanswered(self, error: Exception) -> str:
        """What to say; a request may have been sent on to a node that is gone."""
        try:
            asked = _node_of(error.request.url)  # type: ignore[attr-defined]
        except (AttributeError, RuntimeError):
            asked = self._url
        if asked != _node_of(httpx.URL(self._url)):
            return (
                f"{asked} is in charge of this by the log, and does not answer ({error}); if it "
                "is gone another node takes over within seconds: try again"
            )
        if isinstance(error, httpx.RemoteProtocolError | httpx.ReadError):
            return (
                f"what answers at {asked} does not speak HTTP, or ended just now ({error}): --url "
                f"or {URL_VARIABLE} is a node's webServicePort (8080), not Kafka's port or the "
                "clients'"
            )
        return (
            f"no node answers at {asked} ({error}); start one with `anabranch dev`, or name "
            f"another with --url or {URL_VARIABLE}"
        )


def _http(url: str) -> str:
    """A node's address with its scheme, which may be left out. Raises InvalidInputError."""
    scheme, sep, rest = url.partition("://")
    if not sep:
        scheme, rest = "http", url
    if scheme not in ("http", "https") or not rest.strip("/"):
        raise InvalidInputError(
            f"{url!r} is no node's address: write http://host:port, with its webServicePort"
        )
    return f"{scheme}://{rest.rstrip('/')}"


def _node_of(url: httpx.URL) -> str:
    return f"{url.scheme}://{url.netloc.decode()}"


def quoted(part: str) -> str:
    """A name as one segment of a path."""
    return quote(part, safe="")
