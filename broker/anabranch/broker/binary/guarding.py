"""Commands of the binary protocol behind the guard: each is asked for by the client's principal."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Protocol

from anabranch.broker.errors import OperationError
from anabranch.broker.requester import asked_by, requester
from anabranch.broker.security.guard import AccessGuard
from anabranch.broker.security.open_rights import UNASKED, Lost, OpenRight
from anabranch.core.names import parse_namespace, parse_scalable_topic, parse_topic
from anabranch.core.security.actions import Need
from anabranch.core.security.principal import Principal
from anabranch.core.security.resources import (
    CLUSTER,
    ResourceLevel,
    ResourceName,
    namespace_resource,
    topic_resource,
)
from anabranch.core.security.table import WIRE
from anabranch.wire import commands
from anabranch.wire.anabranch_pb2 import BaseCommand
from anabranch.wire.server.server import Peer, Route


class Decides(Protocol):
    """Decides a refusal again once all of the log is read (`Proposals.decided`)."""

    def __call__(self, ask: Callable[[], Awaitable[None]]) -> Awaitable[None]: ...


def guarded(route: Route, number: int, peer: Peer, guard: AccessGuard, decided: Decides) -> Route:
    """The route of a command, for those who have the right to it."""
    name = commands.name_of(number)
    need = WIRE[name].need

    async def serve(command: BaseCommand) -> None:
        principal = peer.principal
        guard.must_be_somebody(principal, need)
        on = resource_of_command(command)
        with asked_by(principal):
            if not guard.may(principal, need, on):
                await _refuse(guard, principal, need, on, decided, name, peer)
            await route(command)

    return serve


def may_at_once(guard: AccessGuard, peer: Peer, command: BaseCommand) -> bool:
    """Returns whether a command, whose names are sound, may be answered without its route."""
    need = WIRE[commands.name_of(commands.type_of(command))].need
    principal, on = peer.principal, resource_of_command(command)
    return bool(principal.role) and guard.may(principal, need, on)


def check_again(guard: AccessGuard, peer: Peer, command: BaseCommand) -> None:
    """Raises OperationError for a client that has lost the right to a command while it waited."""
    name = commands.name_of(commands.type_of(command))
    try:
        guard.check(requester(), WIRE[name].need, resource_of_command(command))
    except OperationError as error:
        guard.note(error, name, peer.host)
        raise


def open_right(
    guard: AccessGuard | None, peer: Peer, number: int, on: ResourceName, lost: Lost
) -> OpenRight:
    """Returns the right of the watch or session that this command has opened; close it with that.

    `lost` is called when the right is gone. Raises OperationError if it is gone already. Without a
    guard no right is needed.
    """
    if guard is None:
        return UNASKED
    name = commands.name_of(number)
    return guard.open(peer.principal, WIRE[name].need, on, lost, request=name, host=peer.host)


@contextlib.contextmanager
def going_on(
    guard: AccessGuard | None, peer: Peer, number: int, on: ResourceName
) -> Iterator[OpenRight]:
    """Holds the right to an answer that may wait for long, and is not to be told without it.

    If the right went meanwhile, it raises at the end the OperationError of a new request.
    """
    gone: list[OperationError] = []
    right = open_right(guard, peer, number, on, gone.append)
    try:
        yield right
    finally:
        right.close()
    if gone:
        raise gone.pop()  # kept here, it would be a circle with this frame


async def _refuse(
    guard: AccessGuard,
    principal: Principal,
    need: Need,
    on: ResourceName,
    decided: Decides,
    name: str,
    peer: Peer,
) -> None:
    """Raises, unless the right was granted just now and is not folded here yet."""

    async def ask() -> None:
        guard.check(principal, need, on)

    try:
        await decided(ask)
    except OperationError as error:
        guard.note(error, name, peer.host)
        raise


def resource_of_command(command: BaseCommand) -> ResourceName:
    """Returns the resource that the command is about.

    Raises InvalidInputError, as its route does.
    """
    rule = WIRE[commands.name_of(commands.type_of(command))]
    payload: Any = commands.payload_of(command)
    if rule.level is ResourceLevel.CLUSTER:
        return CLUSTER
    if rule.level is ResourceLevel.NAMESPACE:
        return namespace_resource(parse_namespace(payload.namespace))
    if command.type == BaseCommand.LOOKUP:
        topic, _ = parse_topic(payload.topic)
        return topic_resource(topic.partition("://")[2])
    return topic_resource(parse_scalable_topic(payload.topic))
