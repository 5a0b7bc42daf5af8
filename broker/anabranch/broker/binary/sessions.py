"""All that a node serves on its binary port, and the parts of it that are small.

Each part is an `OpenSession`: given a client, it returns the routes that it serves for this client.
`open_sessions` makes one of them all.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Final

from anabranch.broker.binary.consuming import consumer_sessions
from anabranch.broker.binary.forms import ClientSettings, segment_form
from anabranch.broker.binary.guarding import check_again, guarded, may_at_once
from anabranch.broker.binary.listing import topic_lists
from anabranch.broker.binary.watching import layout_watches
from anabranch.broker.bundles.lookups import Located
from anabranch.broker.errors import NotFoundError, UnavailableError, code_of
from anabranch.broker.load.traffic import ReportedTraffic, TrafficReport, TrafficReports
from anabranch.broker.operations import Operations
from anabranch.broker.requester import requester
from anabranch.broker.security.guard import AccessGuard
from anabranch.broker.settings import Settings
from anabranch.broker.topics.controllers.access import TopicAccess
from anabranch.core import names
from anabranch.core.entities.segment import SegmentInfo
from anabranch.core.entities.topic import ScalableTopic
from anabranch.core.errors import AnabranchError, InvalidInputError
from anabranch.core.names import parse_scalable_topic
from anabranch.core.security.actions import CONSUMING, PRODUCING
from anabranch.core.security.resources import topic_resource
from anabranch.wire import anabranch_pb2 as pb
from anabranch.wire import commands
from anabranch.wire.errors import RefusedError, WireError
from anabranch.wire.server.refusals import KAFKA_CLIENTS
from anabranch.wire.server.server import OpenSession, Peer, Route, Routes


def sessions(
    operations: Operations, settings: Settings, guard: AccessGuard | None = None
) -> OpenSession:
    """Look-ups, watches of layouts, consumers, reports of traffic, and lists of topics.

    `guard`: asked of each command; None: of none.
    """

    def before(route: Route, number: int, peer: Peer) -> Route:
        if guard is None:
            return route
        return guarded(route, number, peer, guard, operations.decided)

    topics = operations.topics
    if guard is not None:
        topics.access.runtime.followers.append(guard.rights)
    timeout_s = settings.scalable_topic_consumer_session_timeout_seconds
    told = ClientSettings(
        topic_prefix=settings.topic_prefix,
        bootstrap_servers=settings.bootstrap_servers,
        max_message_bytes=settings.max_message_size,
        session_timeout_ms=round(timeout_s * 1000),
    )
    return open_sessions(
        lookups(operations, guard),
        on_kafka(layout_watches(topics.watches, told, guard=guard)),
        on_kafka(consumer_sessions(topics.consumers, topics.dead_letters, told, guard)),
        lineages(topics.access, told),
        traffic_reports(topics.access, operations.traffic, guard),
        topic_lists(topics.access, topics.lists, operations.topic_list_limiter, guard=guard),
        before=before,
    )


Before = Callable[[Route, int, Peer], Route]

_BEGINNINGS: Final = (pb.BaseCommand.SCALABLE_TOPIC_LOOKUP, pb.BaseCommand.SCALABLE_TOPIC_SUBSCRIBE)


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


async def _refused(command: pb.BaseCommand) -> None:
    name = commands.name_of(commands.type_of(command))
    raise RefusedError(
        pb.ServerError.NotAllowedError,
        f"{name} is refused to a client that does not read Kafka, where the messages of scalable "
        f"topics are: {KAFKA_CLIENTS}",
    )


def lookups(operations: Operations, guard: AccessGuard | None = None) -> OpenSession:
    """Returns the part that answers LOOKUP. `guard`: asked of who may; None: any client may."""

    def open_session(peer: Peer) -> Routes:
        async def lookup(command: pb.BaseCommand) -> None:
            asked = command.lookupTopic
            try:
                found = await _locate(operations, asked.topic)
                if guard is not None:
                    check_again(guard, peer, command)
            except AnabranchError as error:
                answer = pb.CommandLookupTopicResponse(
                    request_id=asked.request_id,
                    response=pb.CommandLookupTopicResponse.Failed,
                    error=code_of(error),
                    message=str(error),
                )
                peer.send(answer)
            else:
                peer.send_command(_found(asked.request_id, found))

        def lookup_at_once(command: pb.BaseCommand) -> bool:
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
            operations.runtime.metrics.fast_lookups += 1
            peer.send_command(_found(asked.request_id, located))
            return True

        peer.answer_at_once(pb.BaseCommand.LOOKUP, lookup_at_once)
        return {pb.BaseCommand.LOOKUP: lookup}

    return open_session


def _found(request_id: int, located: Located) -> pb.BaseCommand:
    """Every node sees who owns what, so the answer never is to ask another."""
    command = pb.BaseCommand(type=pb.BaseCommand.LOOKUP_RESPONSE)
    answer = command.lookupTopicResponse
    answer.request_id = request_id
    answer.response = pb.CommandLookupTopicResponse.Connect
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
    async def answer(command: pb.BaseCommand) -> None:
        try:
            await route(command)
        except WireError:
            raise
        except AnabranchError as error:
            raise RefusedError(code_of(error), str(error)) from error

    return answer


def lineages(access: TopicAccess, settings: ClientSettings) -> OpenSession:
    """The part that tells a segment's ancestors and descendants, for who reads the past (1003).

    Any node does, by the newest layout that it has read.
    """

    def open_session(peer: Peer) -> Routes:
        async def tell(command: pb.BaseCommand) -> None:
            asked = command.scalableTopicLineage
            name = parse_scalable_topic(asked.topic)

            async def look() -> tuple[ScalableTopic, tuple[SegmentInfo, ...]]:
                return access.lineage(name, asked.segment_id)

            topic, parts = await access.proposals.decided(look)
            peer.send(
                pb.CommandScalableTopicLineageResponse(
                    request_id=asked.request_id,
                    epoch=topic.epoch,
                    incarnation=topic.incarnation,
                    segments=[segment_form(settings, name, topic, part) for part in parts],
                )
            )

        return {pb.BaseCommand.SCALABLE_TOPIC_LINEAGE: tell}

    return open_session


def traffic_reports(
    access: TopicAccess, reports: TrafficReports, guard: AccessGuard | None = None
) -> OpenSession:
    """The part that takes clients' reports of traffic (1001), of topics that this node controls.

    `guard`: checks the right to report writes, and reads; None: there is no check.
    """

    def open_session(peer: Peer) -> Routes:
        async def report(command: pb.BaseCommand) -> None:
            said = command.scalableTrafficReport
            topic = parse_scalable_topic(said.topic)
            access.must_control(topic)
            found = access.topic(topic)
            if found.incarnation != said.incarnation:
                raise NotFoundError(f"{said.topic} was deleted, or made again")
            believed = _believed(said.segments, topic, guard)
            taken = tuple(_known(believed, access, topic, found))
            reports.take(
                TrafficReport(topic, said.incarnation, said.client_id, said.since_ms / 1000, taken)
            )
            peer.send(
                pb.CommandScalableTrafficReportResponse(
                    request_id=said.request_id, interval_ms=round(reports.interval_s * 1000)
                )
            )

        return {pb.BaseCommand.SCALABLE_TRAFFIC_REPORT: report}

    return open_session


def _believed(
    said: Iterable[pb.SegmentTraffic], topic: str, guard: AccessGuard | None
) -> list[pb.SegmentTraffic]:
    """Returns the reports of writes where the client may produce, and of reads where it may
    consume.

    Otherwise a client that may only read could have the topic split.
    """
    if guard is None:
        return list(said)
    who, on = requester(), topic_resource(topic)
    writes, reads = guard.may(who, PRODUCING, on), guard.may(who, CONSUMING, on)
    return [each for each in said if (reads if each.subscription else writes)]


def _known(
    said: Collection[pb.SegmentTraffic], access: TopicAccess, name: str, topic: ScalableTopic
) -> Iterator[ReportedTraffic]:
    """Yields reports on places that exist; a client may invent some, or know them for longer."""
    segments = {part.segment_id for part in topic.segments}
    named = {each.subscription for each in said}  # "": the client writes
    view = access.runtime.view
    readers = {each for each in named if not each or view.subscription(name, each) is not None}
    for each in said:
        if each.segment_id in segments and each.subscription in readers:
            yield ReportedTraffic(
                each.segment_id,
                each.subscription,
                each.messages,
                each.bytes,
                each.told_messages,
                each.told_bytes,
            )
