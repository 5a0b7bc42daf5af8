"""Look-ups by the binary protocol, and how the parts of a session come together.

Each part of the node that serves commands is an `OpenSession`: given a client, it returns the
routes that it serves for this client. `open_sessions` makes one of them all; the node's command
line lists the parts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from anabranch.broker.binary.guarding import check_again, may_at_once
from anabranch.broker.bundles.lookups import Located
from anabranch.broker.errors import (
    ConflictError,
    DeadlineExceededError,
    ForbiddenError,
    KafkaFailedError,
    NotFoundError,
    OverloadedError,
    PreconditionError,
    TooManyRequestsError,
    UnavailableError,
)
from anabranch.broker.operations import Operations
from anabranch.broker.security.credentials import CredentialsError
from anabranch.broker.security.guard import AccessGuard
from anabranch.core import names
from anabranch.core.errors import AnabranchError, InvalidInputError
from anabranch.core.topic_lists.errors import PermitAcquireError
from anabranch.core.topic_lists.selection import PatternError
from anabranch.wire import commands
from anabranch.wire.anabranch_pb2 import (
    BaseCommand,
    CommandLookupTopicResponse,
    ServerError,
)
from anabranch.wire.errors import RefusedError, WireError
from anabranch.wire.server.refusals import KAFKA_CLIENTS
from anabranch.wire.server.server import OpenSession, Peer, Route, Routes

Before = Callable[[Route, int, Peer], Route]

_BEGINNINGS: Final = (BaseCommand.SCALABLE_TOPIC_LOOKUP, BaseCommand.SCALABLE_TOPIC_SUBSCRIBE)
CODE_OF: Final[dict[type[AnabranchError], ServerError]] = {
    InvalidInputError: ServerError.InvalidTopicName,
    NotFoundError: ServerError.TopicNotFound,
    ForbiddenError: ServerError.AuthorizationError,
    CredentialsError: ServerError.AuthenticationError,
    ConflictError: ServerError.NotAllowedError,
    PreconditionError: ServerError.NotAllowedError,
    UnavailableError: ServerError.ServiceNotReady,
    OverloadedError: ServerError.TooManyRequests,
    TooManyRequestsError: ServerError.TooManyRequests,
    PermitAcquireError: ServerError.TooManyRequests,
    PatternError: ServerError.NotAllowedError,
    DeadlineExceededError: ServerError.ServiceNotReady,
    KafkaFailedError: ServerError.NotAllowedError,  # for good, so clients must not try again
}


def code_of(error: AnabranchError) -> ServerError:
    """The protocol's number for an error of this node."""
    for kind in type(error).__mro__:
        if kind in CODE_OF:
            return CODE_OF[kind]
    return ServerError.UnknownError


def open_sessions(*parts: OpenSession, before: Before | None = None) -> OpenSession:
    """Returns all parts as one; an error that a route raises on purpose becomes its command's
    answer.

    `before`: wraps each route in one that looks at the asker first.
    """

    def open_session(peer: Peer) -> Routes:
        routes: dict[int, Route] = {}
        for part in parts:
            for number, route in part(peer).items():
                if number in routes:
                    raise ValueError(f"two parts serve command {number}")
                served = before(route, number, peer) if before is not None else route
                routes[number] = _answering(served)
        return routes

    return open_session


def on_kafka(part: OpenSession) -> OpenSession:
    """The part, refused to clients that do not say that they read Kafka.

    Pulsar's would take the layout, look for its segments at brokers, and hang.
    """

    def open_session(peer: Peer) -> Routes:
        routes = part(peer)
        if peer.reads_kafka:
            return routes
        return {number: _refused if number in _BEGINNINGS else routes[number] for number in routes}

    return open_session


async def _refused(command: BaseCommand) -> None:
    name = commands.name_of(commands.type_of(command))
    raise RefusedError(
        ServerError.NotAllowedError,
        f"{name} is refused to a client that does not read Kafka, where the messages of scalable "
        f"topics are: {KAFKA_CLIENTS}",
    )


def lookups(operations: Operations, guard: AccessGuard | None = None) -> OpenSession:
    """Returns the part that answers LOOKUP. `guard`: asked of who may; None: any client may."""

    def open_session(peer: Peer) -> Routes:
        async def lookup(command: BaseCommand) -> None:
            asked = command.lookupTopic
            try:
                found = await _locate(operations, asked.topic)
                if guard is not None:
                    check_again(guard, peer, command)
            except AnabranchError as error:
                answer = CommandLookupTopicResponse(
                    request_id=asked.request_id,
                    response=CommandLookupTopicResponse.Failed,
                    error=code_of(error),
                    message=str(error),
                )
                peer.send(answer)
            else:
                peer.send_command(_found(asked.request_id, found))

        def lookup_at_once(command: BaseCommand) -> bool:
            asked = command.lookupTopic
            try:
                name, namespace = names.parse_topic(asked.topic)
            except InvalidInputError:
                return False
            located = operations.lookups.known(name, namespace)
            if located is None or not (located.service_url or located.service_url_tls):
                return False
            if guard is not None and not may_at_once(guard, peer, command):
                return False  # its route says why
            operations.lookups.answered_at_once(name, namespace, located)
            peer.send_command(_found(asked.request_id, located))
            return True

        peer.answer_at_once(BaseCommand.LOOKUP, lookup_at_once)
        return {BaseCommand.LOOKUP: lookup}

    return open_session


def _found(request_id: int, located: Located) -> BaseCommand:
    """Every node sees who owns what, so the answer never is to ask another."""
    command = BaseCommand(type=BaseCommand.LOOKUP_RESPONSE)
    answer = command.lookupTopicResponse
    answer.request_id = request_id
    answer.response = CommandLookupTopicResponse.Connect
    if located.service_url:
        answer.brokerServiceUrl = located.service_url
    if located.service_url_tls:
        answer.brokerServiceUrlTls = located.service_url_tls
    answer.authoritative = True
    return command


async def _locate(operations: Operations, topic: str) -> Located:
    name, namespace = names.parse_topic(topic)
    located = await operations.lookups.lookup(name, namespace)
    if not located.service_url and not located.service_url_tls:
        raise UnavailableError(
            f"{located.broker} owns the bundle of {name} and serves no binary protocol"
        )
    return located


def _answering(route: Route) -> Route:
    async def answer(command: BaseCommand) -> None:
        try:
            await route(command)
        except WireError:
            raise
        except AnabranchError as error:
            raise RefusedError(code_of(error), str(error)) from error

    return answer
