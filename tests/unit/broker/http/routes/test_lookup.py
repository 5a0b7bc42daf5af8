import asyncio

from anabranch.broker.http.routes.reads import LOOKUP_PREFIX
from anabranch.core.ring import parse_range, topic_hash
from support.http import HttpNode, with_http
from support.memory_cluster import WAIT_S, MemoryCluster, until

PATH = f"{LOOKUP_PREFIX}persistent/public/default/orders"


async def owner_of(node: HttpNode, path: str = PATH) -> str:
    answer = await node.http.get(path)
    assert answer.status_code == 200, answer.text
    found: str = answer.json()["httpUrl"]
    return found


def test_every_node_names_the_same_owner() -> None:
    async def test(nodes: list[HttpNode], _: MemoryCluster) -> None:
        first = await owner_of(nodes[0])
        assert {await owner_of(node) for node in nodes} == {first}
        assert first in {f"http://{node.id}" for node in nodes}

    with_http(test, count=3)


def test_an_answer_has_the_fields_of_pulsars_lookup_data() -> None:
    async def test(nodes: list[HttpNode], _: MemoryCluster) -> None:
        answer = (await nodes[0].http.get(PATH)).json()
        service_url = nodes[0].node.settings.service_url
        assert service_url == "pulsar://b1:6650"
        assert answer == {
            "brokerUrl": service_url,
            "brokerUrlTls": None,
            "httpUrl": f"http://{nodes[0].id}",
            "httpUrlTls": None,
            "nativeUrl": service_url,
        }

    with_http(test)


def test_look_ups_are_answered_one_by_one_whatever_becomes_of_the_connection() -> None:
    """Several at once, and the last one; and as a page of another site may read it."""
    origin = "https://console.example.org"

    async def test(nodes: list[HttpNode], _: MemoryCluster) -> None:
        known = await nodes[0].http.get(PATH)
        port = nodes[0].http.base_url.port
        for last, kept in (("HTTP/1.1\r\nConnection: close", 3), ("HTTP/1.0", 3)):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            asked = f"GET {PATH} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
            end = f"GET {PATH} {last}\r\nHost: 127.0.0.1\r\n\r\n"
            writer.write((asked * kept + end).encode())
            told = (await asyncio.wait_for(reader.read(), WAIT_S)).decode()  # to the end
            assert told.count("HTTP/1.1 200 OK") == told.count(known.text) == kept + 1
            assert told.count("connection: close") == 1
            writer.close()
        read = await nodes[0].http.get(PATH, headers={"Origin": origin})
        assert read.content == known.content
        assert read.headers["access-control-allow-origin"] == origin

    with_http(test, webServiceAllowedOrigins=origin)


def test_an_answer_that_had_to_be_waited_for_is_the_one_that_is_known_then() -> None:
    async def test(nodes: list[HttpNode], _: MemoryCluster) -> None:
        waited, known = await nodes[0].http.get(PATH), await nodes[0].http.get(PATH)
        assert (waited.status_code, waited.content) == (known.status_code, known.content)
        assert waited.headers == known.headers
        assert known.headers["content-type"] == "application/json"

    with_http(test)


def test_other_methods_are_refused_with_those_that_the_description_has() -> None:
    async def test(nodes: list[HttpNode], _: MemoryCluster) -> None:
        answer = await nodes[0].http.put(PATH)
        assert (answer.status_code, answer.headers["allow"]) == (405, "GET")

    with_http(test)


def test_the_bundle_of_a_topic_is_the_range_that_its_hash_is_in() -> None:
    async def test(nodes: list[HttpNode], _: MemoryCluster) -> None:
        answer = await nodes[0].http.get(f"{PATH}/bundle")
        assert answer.headers["content-type"].startswith(
            "text/plain"
        )  # as Pulsar's client reads it
        assert topic_hash("persistent://public/default/orders") in parse_range(answer.text)

    with_http(test)


def test_a_local_name_may_hold_any_encoded_character() -> None:
    async def test(nodes: list[HttpNode], _: MemoryCluster) -> None:
        part = await nodes[0].http.get(
            f"{LOOKUP_PREFIX}persistent/public/default/a%2Fb%20%C3%A4/bundle"
        )
        name = "persistent://public/default/a/b ä"
        assert topic_hash(name) in parse_range(part.text)

    with_http(test)


def test_a_lookup_of_nothing_there_is_refused_with_its_reason() -> None:
    cases = {
        "persistent/nobody/default/t": (404, "nobody/default"),
        "persistent/public/nothing/t": (404, "public/nothing"),
        "resistant/public/default/t": (412, "domain 'resistant'"),
        "persistent/pub%20lic/default/t": (412, "tenant name 'pub lic'"),
        "persistent/public/default": (404, "there is no path"),
        "persistent//default/t": (404, "there is no path"),
        "persistent/public/default/": (412, "topic name"),
        "persistent/public/default/" + "x" * 1100: (412, "topic name"),
    }

    async def test(nodes: list[HttpNode], _: MemoryCluster) -> None:
        for path, (status, named) in cases.items():
            answer = await nodes[0].http.get(LOOKUP_PREFIX + path)
            assert answer.status_code == status, path
            assert named in answer.json()["reason"]

    with_http(test)


def test_a_node_without_its_lease_answers_what_it_knows_and_marks_it_stale() -> None:
    async def test(nodes: list[HttpNode], _: MemoryCluster) -> None:
        node = nodes[0]
        owner = await owner_of(node)
        assert "x-anabranch-stale" not in (await node.http.get(PATH)).headers
        node.node.connected = False
        await until(lambda: not node.node.runtime.has_lease)
        answer = await node.http.get(PATH)
        assert (answer.status_code, answer.json()["httpUrl"]) == (200, owner)
        assert answer.headers["x-anabranch-stale"] == "true"
        listing = await node.http.get("/admin/v2/namespaces/public/default/bundles")
        assert listing.headers["x-anabranch-stale"] == "true"
        unknown = await node.http.get(f"{LOOKUP_PREFIX}persistent/public/default/topic-1")
        if unknown.status_code != 200:  # a bundle that nobody owns needs the log
            assert unknown.status_code == 503
            assert "safe mode" in unknown.json()["reason"]
            assert unknown.headers["retry-after"] == "1"

    with_http(test, leaseMillis=2_000, livenessTimeoutMillis=3_000)
