"""What is open by a right that is revoked ends, in the words of its protocol; the rest goes on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from structlog.testing import capture_logs

from anabranch.wire import anabranch_pb2 as pb
from anabranch.wire import commands
from anabranch.wire.anabranch_pb2 import BaseCommand, ServerError
from anabranch.wire.commands import NO_REQUEST
from anabranch.wire.memory.limiter import LimitType
from support.binary import subscribe
from support.memory_cluster import until
from support.secured import ROOT, SecuredNode, answer_to, bearer, secured_node, tokens_alone
from support.tokens import secret_file, token
from support.wire import Raw, error_of

ADMIN: Final = "/admin/v2"
HOME: Final = "acme/shop"
TOPIC: Final = f"{HOME}/orders"
OF_HOME: Final = f"{ADMIN}/namespaces/{HOME}/permissions"
OF_TOPIC: Final = f"{ADMIN}/scalable/{TOPIC}/permissions"
WATCH: Final = pb.CommandScalableTopicLookup(topic=f"topic://{TOPIC}", session_id=1)
SUBSCRIBE: Final = subscribe(TOPIC)
NAMES: Final = pb.CommandWatchScalableTopics(namespace=HOME, watch_id=1)
LIST: Final = pb.CommandWatchTopicList(
    namespace=HOME, topics_pattern=".*", request_id=1, watcher_id=1
)
NAMED: Final = pb.CommandGetTopicsOfNamespace(namespace=HOME, request_id=1)
# A list waits for memory, and for long.
SMALL: Final[dict[str, object]] = {
    "maxTopicListInFlightHeapMemSizeMB": 1,
    "maxTopicListInFlightDirectMemSizeMB": 1,
    "maxTopicListInFlightHeapMemSizePermitsAcquireTimeoutMillis": 60_000,
    "maxTopicListInFlightDirectMemSizePermitsAcquireTimeoutMillis": 60_000,
}
OPENING: Final[dict[str, Any]] = {
    "watch": WATCH,
    "consumer": SUBSCRIBE,
    "names": NAMES,
    "list": LIST,
}


# Opened anew it is as if it were not there; of a list all that can be said is that it is over.
CODES: Final = {"list": ServerError.AuthorizationError}


async def ask(node: SecuredNode, method: str, path: str, body: object = None) -> None:
    assert (await node.ask(method, path, bearer(ROOT), body)).status_code == 204


@asynccontextmanager
async def revoking(folder: Path, **more: object) -> AsyncIterator[SecuredNode]:
    settings = {"authorizationEnabled": True, "superuserRoles": ROOT, **more}
    async with secured_node(**tokens_alone(folder, **settings)) as node:
        for tenant, admins in (("acme", ["boss"]), ("river", ["bob"])):
            about = {"adminRoles": admins, "allowedClusters": ["standalone"]}
            await ask(node, "PUT", f"{ADMIN}/tenants/{tenant}", about)
        await ask(node, "PUT", f"{ADMIN}/namespaces/{HOME}")
        await ask(node, "PUT", f"{ADMIN}/scalable/{TOPIC}")
        yield node


async def opened(client: Raw, what: Any) -> BaseCommand:
    await client.welcomed()
    answer = await answer_to(client, what)
    assert error_of(answer) == -1, answer
    return answer


async def ended(client: Raw, what: str) -> int:
    """The code that the end of it is told with; of a consumer that of its next try."""
    answer = await client.told()
    if what == "watch":
        assert answer.scalableTopicUpdate.session_id == 1
        assert not answer.scalableTopicUpdate.HasField("dag")
        return answer.scalableTopicUpdate.error
    if what == "names":
        assert answer.watchScalableTopicsUpdate.watch_id == 1
        return answer.watchScalableTopicsUpdate.error
    if what == "list":
        assert answer.error.request_id == NO_REQUEST
        assert await client.answer() is None  # there is no other way to say so
        return answer.error.error
    assert answer.close_consumer.consumer_id == 1
    assert "consume" in answer.close_consumer.reason or "not for" in answer.close_consumer.reason
    again = await answer_to(client, SUBSCRIBE)
    return again.scalableTopicSubscribeResponse.error


@pytest.mark.parametrize("what", OPENING)
async def test_what_is_open_ends_when_its_right_is_revoked(what: str, tmp_path: Path) -> None:
    async with revoking(tmp_path) as node:
        path = f"{OF_TOPIC if what == 'consumer' else OF_HOME}/ada"
        await ask(node, "POST", path, ["consume"])
        async with node.connect("token", token("ada").encode()) as client:
            await opened(client, OPENING[what])
            with capture_logs() as logged:
                await ask(node, "DELETE", path)
                assert await ended(client, what) == CODES.get(what, ServerError.TopicNotFound)
            lines = [line for line in logged if line["event"] == "authorization.revoked"]
            assert [(line["principal"], line["peer"]) for line in lines] == [("ada", "127.0.0.1")]
            assert (len(node.security.guard.rights), node.wire.gate.account.watches) == (0, 0)
            assert node.security.guard.rights.ended.total() == 1


async def test_a_lesser_right_ends_what_needs_more_and_nothing_else(tmp_path: Path) -> None:
    """A consumer whose role may only look on: its session ends, its watch goes on."""

    async with revoking(tmp_path) as node:
        await ask(node, "POST", f"{OF_TOPIC}/ada", ["consume"])
        async with (
            node.connect("token", token("ada").encode()) as consumer,
            node.connect("token", token("ada").encode()) as watch,
            node.connect("token", token("ada").encode()) as other,
        ):
            await opened(consumer, SUBSCRIBE)
            await opened(watch, WATCH)
            await ask(node, "POST", f"{OF_HOME}/ada", ["view"])
            await opened(other, NAMES)
            await ask(node, "POST", f"{OF_TOPIC}/ada", ["view"])
            assert await ended(consumer, "consumer") == ServerError.AuthorizationError
            await ask(node, "DELETE", f"{OF_TOPIC}/ada")  # that of the namespace is left
            await ask(node, "POST", f"{ADMIN}/scalable/{TOPIC}/split/0")
            told = await watch.told()
            assert told.scalableTopicUpdate.HasField("dag")
            await ask(node, "PUT", f"{ADMIN}/scalable/{HOME}/more")
            names = await other.told()
            assert list(names.watchScalableTopicsUpdate.diff.added) == [f"topic://{HOME}/more"]


async def test_a_topic_that_is_deleted_is_told_so_to_who_had_a_right_to_it(tmp_path: Path) -> None:
    async with revoking(tmp_path) as node:
        await ask(node, "POST", f"{OF_TOPIC}/ada", ["view"])
        async with node.connect("token", token("ada").encode()) as client:
            await opened(client, WATCH)
            await ask(node, "DELETE", f"{ADMIN}/scalable/{TOPIC}")
            told = await client.told()
            assert told.scalableTopicUpdate.dag.deleted
            assert told.scalableTopicUpdate.error == ServerError.TopicNotFound


async def test_what_changes_with_the_revoke_is_not_told_any_more(tmp_path: Path) -> None:
    """One batch of the log holds both: the topic that is new is not seen by who was to see it."""

    async with revoking(tmp_path) as node:
        await ask(node, "POST", f"{OF_HOME}/ada", ["view"])
        async with node.connect("token", token("ada").encode()) as client:
            await opened(client, NAMES)
            rights, lists = node.security.guard.rights, node.node.operations.topics.lists
            folded = rights.folded
            made: list[int] = []

            def both(changes: Any) -> None:
                """As of one batch: the list changes in the same turn of the loop."""
                folded(changes)
                if any(key.startswith("permission:") for key, _ in changes):
                    for kept in lists._by_home.values():
                        for each in kept.values():
                            made.append(each.note(f"topic://{HOME}/secret", True))
                            each.wake()

            rights.folded = both  # type: ignore[method-assign]
            await ask(node, "DELETE", f"{OF_HOME}/ada")
            assert await ended(client, "names") == ServerError.TopicNotFound
            assert any(made)
            lookup = await answer_to(client, NAMES)
            assert lookup.watchScalableTopicsUpdate.error == ServerError.TopicNotFound


@pytest.mark.parametrize("lost", ["gate", "ada"])
async def test_what_a_proxy_has_opened_ends_with_either_right(lost: str, tmp_path: Path) -> None:
    # While ada's right stands, she may know of it.
    code = ServerError.AuthorizationError if lost == "gate" else ServerError.TopicNotFound

    async with revoking(tmp_path, proxyRoles="gate") as node:
        for role in ("ada", "gate"):
            await ask(node, "POST", f"{OF_HOME}/{role}", ["consume"])
        shown = token("gate").encode()
        async with node.connect("token", shown, original_principal="ada") as client:
            await opened(client, SUBSCRIBE)
            with capture_logs() as logged:
                await ask(node, "DELETE", f"{OF_HOME}/{lost}")
                assert await ended(client, "consumer") == code
            (line,) = (each for each in logged if each["event"] == "authorization.revoked")
            assert (line["principal"], line["proxied_by"]) == ("ada", "gate")
            assert ("gate, the proxy that asks for ada, may not" in line["why"]) is (lost == "gate")
            assert len(node.security.guard.rights) == 0


@pytest.mark.parametrize("kind", LimitType)
async def test_a_list_that_waits_is_not_told_without_right(kind: LimitType, tmp_path: Path) -> None:
    """It is allowed when it is asked for; then it waits for memory, and nothing of it is told."""

    async with revoking(tmp_path, **SMALL) as node:
        await ask(node, "POST", f"{OF_HOME}/ada", ["view"])
        limiter = node.node.operations.topic_list_limiter
        async with node.connect("token", token("ada").encode()) as client:
            await client.answer()
            async with limiter.held(1 << 20, kind):
                client.send(commands.envelope(NAMED))
                await until(lambda: limiter.side(kind).queue_size == 1)
                await ask(node, "DELETE", f"{OF_HOME}/ada")
                await ask(node, "PUT", f"{ADMIN}/scalable/{HOME}/secret")
            answer = await client.told()
            assert answer.error.error == ServerError.TopicNotFound
            assert "secret" not in str(answer)
            assert len(node.security.guard.rights) == 0
            # It was this request alone that ended, not what its connection asks for afterwards.
            await ask(node, "POST", f"{OF_HOME}/ada", ["view"])
            again = await answer_to(client, NAMED)
            assert again.type == BaseCommand.GET_TOPICS_OF_NAMESPACE_RESPONSE


async def test_a_list_by_rest_that_waits_is_not_told_without_its_right(tmp_path: Path) -> None:
    async with revoking(tmp_path, **SMALL) as node:
        await ask(node, "POST", f"{OF_HOME}/ada", ["view"])
        limiter = node.node.operations.topic_list_limiter
        async with limiter.held(1 << 20, LimitType.HEAP_MEMORY):
            path = f"{ADMIN}/scalable/{HOME}"
            asking = asyncio.create_task(node.ask("GET", path, bearer("ada")))
            await until(lambda: limiter.side(LimitType.HEAP_MEMORY).queue_size == 1)
            await ask(node, "DELETE", f"{OF_HOME}/ada")
            await ask(node, "PUT", f"{path}/secret")
        answer = await asking
        assert answer.status_code == 404
        assert "secret" not in answer.text


@pytest.mark.parametrize("by", ["rest", "wire"])
async def test_a_look_up_that_waits_is_not_answered_without_right(by: str, tmp_path: Path) -> None:
    async def asked(node: SecuredNode, name: str) -> str:
        if by == "rest":
            answer = await node.ask("GET", f"/lookup/v2/topic/persistent/{name}", bearer("ada"))
            return str(answer.status_code)
        async with node.connect("token", token("ada").encode()) as client:
            await client.answer()
            wanted = pb.CommandLookupTopic(topic=f"persistent://{name}", request_id=1)
            command = await answer_to(client, wanted)
        assert command is not None
        return ServerError.Name(command.lookupTopicResponse.error)

    async with revoking(tmp_path) as node:
        await ask(node, "POST", f"{OF_HOME}/ada", ["view"])
        located = node.node.operations.lookups.locate_cached
        names = (f"{HOME}/topic-{number}" for number in range(100))
        name = next(each for each in names if located(f"persistent://{each}", HOME) is None)
        node.node.failing = 1  # the append that gives its bundle an owner, which is repeated
        asking = asyncio.create_task(asked(node, name))
        await until(lambda: not node.node.failing)
        with capture_logs() as logged:
            await ask(node, "DELETE", f"{OF_HOME}/ada")
            assert await asking in ("404", "TopicNotFound")
        assert located(f"persistent://{name}", HOME) is not None
        assert [line["principal"] for line in logged if "refused" in line["event"]] == ["ada"]


async def test_who_goes_takes_their_rights_along(tmp_path: Path) -> None:
    async with revoking(tmp_path) as node:
        await ask(node, "POST", f"{OF_HOME}/ada", ["consume"])
        async with node.connect("token", token("ada").encode()) as client:
            await opened(client, WATCH)
            for each in (SUBSCRIBE, NAMES, LIST):
                await answer_to(client, each)
            assert len(node.security.guard.rights) == 4
        await until(lambda: len(node.security.guard.rights) == 0)


# --- what was shown counts no more ----------------------------------------------------------------


async def test_who_has_shown_what_a_key_signed_that_is_gone_is_asked_anew(tmp_path: Path) -> None:
    other_key = bytes(reversed(range(64)))

    async with (
        revoking(tmp_path, authenticationFilesCheckSeconds=0.1) as node,
        node.connect("token", token("ada").encode()) as renewed,
        node.connect("token", token("ada").encode()) as revoked,
        node.connect("token", token("ada").encode(), refreshes=False) as old,
    ):
        for client in (renewed, revoked, old):
            await client.welcomed()
        secret_file(tmp_path, other_key)
        for client in (renewed, revoked):
            asked = await client.told()
            assert asked.type == BaseCommand.AUTH_CHALLENGE
        shown = pb.AuthData(
            auth_method_name="token", auth_data=token("ada", key=other_key).encode()
        )
        renewed.send(commands.envelope(pb.CommandAuthResponse(response=shown)))
        shown.auth_data = token("ada").encode()
        refused = await answer_to(revoked, pb.CommandAuthResponse(response=shown))
        for answer in (refused, await old.answer()):
            assert answer is not None
            assert answer.error.error == ServerError.AuthenticationError
        for client in (revoked, old):
            assert await client.answer() is None
        served = await answer_to(renewed, pb.CommandWatchTopicListClose(request_id=1, watcher_id=1))
        assert served.type == BaseCommand.SUCCESS
