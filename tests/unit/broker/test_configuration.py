"""Settings that change while nodes run: set at one node, in force at all of them."""

from __future__ import annotations

from urllib.parse import quote

from anabranch.broker.settings import load_settings
from anabranch.broker.settings.overrides import RUN_TIME_SETTINGS, effective
from anabranch.channel.codec import read_entry
from anabranch.core.log.records import Cause, PolicyOp, Record, SettingChange
from support.http import http_nodes
from support.memory_cluster import MemoryCluster, until
from support.scalable import refused

ROOT = "/admin/v2/brokers/configuration"
LOOKUP = "lookupTimeoutMillis"
HEAP = "maxTopicListInFlightHeapMemSizeMB"
INTERVAL = "loadBalancerSheddingIntervalMinutes"
WINDOW = "scalableTopicMergeWindowSeconds"
FEWEST, MOST = "scalableTopicMinSegments", "scalableTopicMaxSegments"
UNUSABLE = "Invalid dynamic-config value"
TOO_FEW = "maxSegments must be >= minSegments"
FIXED = "Can't update non-dynamic configuration"


async def test_what_is_set_at_one_node_all_nodes_go_by_until_it_is_unset() -> None:
    async with http_nodes(2) as (nodes, _):
        first, second = (each.node for each in nodes)
        own = second.operations.configuration.current.now
        for name, value in ((LOOKUP, "1234"), (HEAP, "7"), (INTERVAL, "0.5"), (WINDOW, "5m")):
            await first.operations.configuration.override(name, value)
        current = second.operations.configuration.current
        await until(lambda: current.now.auto_scale_policy.merge_window_seconds == 300)
        assert current.now.lookup_timeout_millis == 1234
        assert second.runtime.core.settings.balance.shedding_interval_minutes == 0.5
        service = second.operations.topics.access.service
        assert service.settings.auto_scale.policy.merge_window_seconds == 300
        for name in (LOOKUP, HEAP, INTERVAL, WINDOW):
            await first.operations.configuration.withdraw(name)
        await until(lambda: current.now == own)


def test_what_contradicts_a_nodes_own_settings_is_left_out_there_and_the_rest_counts() -> None:
    own = load_settings(None, {}, {})
    found = effective(
        own,
        [
            (LOOKUP, "99"),
            ("loadBalancerServiceUnitStateTombstoneDelayTimeInSeconds", "30"),
            ("ofTheNextRelease", "1"),
            ("scalableTopicMergeWindow", "300"),  # a way to write it that the log never has
            ("leaseMillis", "1"),
            (HEAP, "nan"),
        ],
    )
    assert found.settings.lookup_timeout_millis == 99
    assert found.settings == own.but({"lookup_timeout_millis": 99})
    assert set(found.ignored) == {
        "loadBalancerServiceUnitStateTombstoneDelayTimeInSeconds",
        "ofTheNextRelease",
        "scalableTopicMergeWindow",
        "leaseMillis",
        HEAP,
    }


def test_who_and_where_a_node_is_and_its_lease_never_change_while_it_runs() -> None:
    fixed = {"leaseMillis", "heartbeatIntervalMillis", "topicPrefix", "dataDir", "clusterName"}
    assert fixed.isdisjoint(RUN_TIME_SETTINGS)


# --- what is asked by REST ---------------------------------------------------------------------


UNUSABLES = (
    (LOOKUP, "", UNUSABLE),
    (LOOKUP, "12/34", "'12/34'"),
    (LOOKUP, "12%2F34", "'12%2F34'"),
    (LOOKUP, "5\u2028", "no character to print"),
    (LOOKUP, "9" * 5_000, "give at most 4096"),
    (INTERVAL, "nan", UNUSABLE),
    (WINDOW, "5 parsecs", UNUSABLE),
    ("logLevel", "loud", UNUSABLE),
    (FEWEST, "65", TOO_FEW),
    ("lookupTimeoutMilis", "5", f"did you mean {LOOKUP}"),
    ("a\nb", "5", FIXED),
    ("leaseMillis", "9000", "changes when a node starts"),
)
NO_TEXT = ("%ff", "%ZZ", "%00")


async def test_what_cannot_be_used_is_refused_in_words_and_nothing_is_logged() -> None:
    async with http_nodes() as (nodes, cluster):
        http = nodes[0].http
        for name, value, said in UNUSABLES:
            path = f"{ROOT}/{quote(name, safe='')}/{quote(value, safe='')}"
            refused(await http.post(path), 412, said)
        for value in NO_TEXT:
            answer = await http.post(f"{ROOT}/{LOOKUP}/{value}")
            assert answer.status_code in {400, 412}, (value, answer.text)
            assert answer.json()["reason"]
        assert changes(cluster) == []
        assert (await http.get(f"{ROOT}/overrides")).json() == {}
        assert (await http.post(f"{ROOT}/{LOOKUP}/4321")).status_code == 204, "the rest goes on"


async def test_what_is_not_overridden_may_be_unset_and_what_is_no_setting_may_not() -> None:
    async with http_nodes() as (nodes, cluster):
        http = nodes[0].http
        assert (await http.delete(f"{ROOT}/{LOOKUP}")).status_code == 204
        refused(await http.delete(f"{ROOT}/leaseMillis"), 412, FIXED)
        assert changes(cluster) == []


async def test_a_node_shows_what_is_overridden_and_what_it_goes_by() -> None:
    async with http_nodes() as (nodes, cluster):
        http = nodes[0].http
        own = (await http.get(f"{ROOT}/runtime")).json()[LOOKUP]
        for value in ("1234", "1234", "2345"):
            assert (await http.post(f"{ROOT}/{LOOKUP}/{value}")).status_code == 204
        assert len(changes(cluster)) == 2, "what is so already is not logged again"
        (shown,) = (await http.get(f"{ROOT}/overrides")).json().values()
        assert (shown["value"], shown["before"], shown["broker"]) == ("2345", "1234", nodes[0].id)
        assert shown["ignored"] == ""
        assert (await http.get(f"{ROOT}/runtime")).json()[LOOKUP] == "2345"
        assert (await http.delete(f"{ROOT}/{LOOKUP}")).status_code == 204
        assert (await http.get(f"{ROOT}/runtime")).json()[LOOKUP] == own


async def test_whose_change_is_contradicted_by_one_of_the_same_moment_is_told() -> None:
    async with http_nodes(2) as (nodes, cluster):
        append = cluster.append
        other = nodes[1].node.runtime.proposals

        def after_another(record: Record) -> None:
            if isinstance(record, SettingChange):
                cluster.append = append  # type: ignore[method-assign]
                actor = other.actor()
                append(
                    SettingChange(
                        proposal_id=other.new_id(),
                        name=MOST,
                        op=PolicyOp.CREATE,
                        version=1,
                        actor=actor.broker,
                        session=actor.session,
                        value="20",
                        cause=Cause.OPERATOR,
                    )
                )
            append(record)

        cluster.append = after_another  # type: ignore[method-assign]
        refused(await nodes[0].http.post(f"{ROOT}/{FEWEST}/40"), 409, "contradicts it")
        for each in nodes:
            shown = (await each.http.get(f"{ROOT}/overrides")).json()
            assert shown[MOST]["ignored"] == ""
            assert TOO_FEW in shown[FEWEST]["ignored"]
            going_by = (await each.http.get(f"{ROOT}/runtime")).json()
            assert (going_by[FEWEST], going_by[MOST]) == ("1", "20")
            assert FEWEST in (await each.http.get("/admin/v2/brokers/health")).text
        assert (await nodes[1].http.delete(f"{ROOT}/{FEWEST}")).status_code == 204
        for each in nodes:
            assert FEWEST not in (await each.http.get("/admin/v2/brokers/health")).text


def changes(cluster: MemoryCluster) -> list[SettingChange]:
    """What the log has of settings."""
    read = [read_entry(each.key, each.value) for each in cluster.entries]
    return [each for each in read if isinstance(each, SettingChange)]
