"""Settings that change while nodes run: set at one node, in force at all of them."""

from __future__ import annotations

from anabranch.broker.settings import load_settings
from anabranch.broker.settings.overrides import RUN_TIME_SETTINGS, effective
from support.http import HttpNode, with_http
from support.memory_cluster import MemoryCluster, until

ROOT = "/admin/v2/brokers/configuration"
LOOKUP = "lookupTimeoutMillis"
HEAP = "maxTopicListInFlightHeapMemSizeMB"
INTERVAL = "loadBalancerSheddingIntervalMinutes"
WINDOW = "scalableTopicMergeWindowSeconds"


def test_what_is_set_at_one_node_all_nodes_go_by_until_it_is_unset() -> None:
    async def test(nodes: list[HttpNode], _: MemoryCluster) -> None:
        first, second = (each.node for each in nodes)
        own = second.operations.configuration.current.now
        for name, value in ((LOOKUP, "1234"), (HEAP, "7"), (INTERVAL, "0.5"), (WINDOW, "5m")):
            await first.operations.configuration.override(name, value)
        current = second.operations.configuration.current
        await until(lambda: current.now.scalable_topic_merge_window_seconds == 300)
        assert current.now.lookup_timeout_millis == 1234
        assert second.runtime.core.settings.balance.shedding_interval_minutes == 0.5
        service = second.operations.topics.access.service
        assert service.settings.auto_scale.policy.merge_window_seconds == 300
        for name in (LOOKUP, HEAP, INTERVAL, WINDOW):
            await first.operations.configuration.withdraw(name)
        await until(lambda: current.now == own)

    with_http(test, 2)


def test_what_contradicts_a_nodes_own_settings_is_left_out_there_and_the_rest_counts() -> None:
    own = load_settings(None, {}, {})
    found = effective(
        own,
        [
            (LOOKUP, "99"),
            ("loadBalancerServiceUnitStateTombstoneDelayTimeInSeconds", "30"),
            ("ofTheNextRelease", "1"),
            ("leaseMillis", "1"),
            (HEAP, "nan"),
        ],
    )
    assert found.settings.lookup_timeout_millis == 99
    assert found.settings == own.model_copy(update={"lookup_timeout_millis": 99})
    assert set(found.ignored) == {
        "loadBalancerServiceUnitStateTombstoneDelayTimeInSeconds",
        "ofTheNextRelease",
        "leaseMillis",
        HEAP,
    }


def test_who_and_where_a_node_is_and_its_lease_never_change_while_it_runs() -> None:
    fixed = {"leaseMillis", "heartbeatIntervalMillis", "topicPrefix", "dataDir", "clusterName"}
    assert fixed.isdisjoint(RUN_TIME_SETTINGS)
