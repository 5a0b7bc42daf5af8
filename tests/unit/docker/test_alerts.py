"""Each alert fires on the series that it is for, and stays silent on those beside it.

promtool judges, Prometheus' own tool for this: that on the PATH, or that of the stack's image.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from support.queries import ALERTS, of_alerts, rules_of_alerts

_IMAGE: Final = "anabranch-prometheus:dev"
_STEP: Final = "15s"
_NODE: Final = 'job="anabranch",instance="n1"'
_OTHER: Final = 'job="anabranch",instance="n2"'
_TOPIC: Final = 'topic="a/b/c"'
_OF: Final = f'{_TOPIC},subscription="s"'


@dataclass(frozen=True, slots=True)
class Case:
    """An alert with series in which it fires at `minute`, and others in which it does not.

    Values are promtool's, one each quarter of a minute: `0x8` is 0 nine times, `0+5x8` climbs by 5,
    `_` is a gap. `firing`: how often, once for each series that is told.
    """

    alert: str
    minute: int
    fires: dict[str, str]
    silent: dict[str, str]
    firing: int = 1


def _each(metric: str, labels: str, loud: str, quiet: str) -> tuple[dict[str, str], dict[str, str]]:
    return {f"{metric}{{{labels}}}": loud}, {f"{metric}{{{labels}}}": quiet}


_PROXY: Final = 'job="proxies",instance="p1"'
_REACHED: Final = "anabranch_proxy_nodes_answering"
_KNOWN: Final = "anabranch_proxy_nodes"
_LAG: Final = "anabranch_fold_lag_records"
_PROPOSALS: Final = "anabranch_proposal_seconds_bucket"
_HAND_OVERS: Final = "anabranch_hand_over_seconds_bucket"
_SHOWN: Final = "anabranch_archive_next_offset"
_BEHIND: Final = "anabranch_archive_behind_records"
_SPLITS: Final = "pulsar_scalable_topic_auto_splits_total"
_MERGES: Final = "pulsar_scalable_topic_auto_merges_total"
_DEEP: Final = "pulsar_scalable_topic_merge_suppressed_max_depth_total"
_FULL: Final = "pulsar_scalable_topic_split_suppressed_max_segments_total"

_LISTS: Final = ("pulsar_broker_topic_list_heap", "pulsar_proxy_topic_list_direct")
_CLUSTER: Final = 'job="anabranch",instance="n1",cluster="river"'


def _lists(
    alert: str, minute: int, loud: dict[str, str], quiet: dict[str, str]
) -> tuple[Case, ...]:
    """The alert of each kind of memory by itself: a node's heap, a proxy's direct memory."""

    def of(metric: str, values: dict[str, str]) -> dict[str, str]:
        return {
            f"{metric}_{name}{{{_CLUSTER}{labels}}}": each
            for (name, _, labels), each in ((key.partition("|"), v) for key, v in values.items())
        }

    return tuple(Case(alert, minute, of(each, loud), of(each, quiet)) for each in _LISTS)


_TOPIC_LISTS: Final = (
    *_lists(
        "AnabranchTopicListMemoryFills",
        3,
        {"memory_used_bytes|": "81x12", "memory_limit_bytes|": "100x12"},
        {"memory_used_bytes|": "80x12", "memory_limit_bytes|": "100x12"},
    ),
    *_lists(
        "AnabranchTopicListQueueFills",
        2,
        {"queue_size|": "91x8", "queue_max_size|": "100x8"},
        {"queue_size|": "90x8", "queue_max_size|": "100x8"},
    ),
    *_lists(
        "AnabranchTopicListsTimeOut",
        8,
        {"timeout_total|": "0+18x32"},
        {"timeout_total|": "0+12x32"},
    ),
    *_lists(
        "AnabranchTopicListsWait",
        8,
        {
            'wait_time_ms_bucket|,le="10000"': "0+97x32",
            'wait_time_ms_bucket|,le="15000"': "0+100x32",
            'wait_time_ms_bucket|,le="+Inf"': "0+100x32",
        },
        {
            'wait_time_ms_bucket|,le="5000"': "0+97x32",
            'wait_time_ms_bucket|,le="10000"': "0+100x32",
            'wait_time_ms_bucket|,le="+Inf"': "0+100x32",
        },
    ),
    # Without a limit there is nothing to fill.
    Case(
        "AnabranchTopicListMemoryFills",
        3,
        {},
        {
            f"{_LISTS[0]}_memory_used_bytes{{{_CLUSTER}}}": "9x12",
            f"{_LISTS[0]}_memory_limit_bytes{{{_CLUSTER}}}": "0x12",
        },
        0,
    ),
    Case(
        "AnabranchTopicListQueueFills",
        2,
        {},
        {
            f"{_LISTS[0]}_queue_size{{{_CLUSTER}}}": "9x12",
            f"{_LISTS[0]}_queue_max_size{{{_CLUSTER}}}": "0x12",
        },
        0,
    ),
    # Both kinds of one instance are told.
    Case(
        "AnabranchTopicListsTimeOut",
        8,
        {
            f"pulsar_broker_topic_list_{each}_timeout_total{{{_CLUSTER}}}": "0+18x32"
            for each in ("heap", "direct")
        },
        {},
        2,
    ),
)
CASES: Final = (
    *_TOPIC_LISTS,
    Case("AnabranchNodeDown", 2, *_each("up", _NODE, "1 1 0x8", "1 1 1 1 1 1 1 0x1")),
    Case("AnabranchNotServing", 2, *_each("anabranch_serving", _NODE, "1 0x8", "0 0 1x8")),
    Case(
        "AnabranchNoLeader",
        2,
        {f"anabranch_is_leader{{{_NODE}}}": "0x8", f"anabranch_is_leader{{{_OTHER}}}": "1 0x8"},
        {f"anabranch_is_leader{{{_NODE}}}": "0x8", f"anabranch_is_leader{{{_OTHER}}}": "1x8"},
    ),
    Case("AnabranchNoLeader", 2, {}, {f"anabranch_is_leader{{{_NODE}}}": "0 1x8"}),
    Case(
        "AnabranchTwoLeaders",
        2,
        {f"anabranch_is_leader{{{_NODE}}}": "1x8", f"anabranch_is_leader{{{_OTHER}}}": "0 1x8"},
        {f"anabranch_is_leader{{{_NODE}}}": "1x8", f"anabranch_is_leader{{{_OTHER}}}": "1 0x8"},
    ),
    Case(
        "AnabranchNodesDisagree",
        3,
        {f"anabranch_brokers{{{_NODE}}}": "3x12", f"anabranch_brokers{{{_OTHER}}}": "3 2x12"},
        {f"anabranch_brokers{{{_NODE}}}": "3 2x12", f"anabranch_brokers{{{_OTHER}}}": "3 3 2x12"},
    ),
    Case(
        "AnabranchSessionLapsed",
        3,
        *_each("anabranch_session_lapses_total", _NODE, "4x6 5x6", "4x12"),
    ),
    Case(
        "AnabranchSessionLapsesOften",
        20,
        *_each("anabranch_session_lapses_total", _NODE, "0+0.1x80", "0x40 1x40"),
    ),
    Case("AnabranchConcern", 3, *_each("anabranch_concerns", _NODE, "0 1x12", "1 0x12")),
    Case(
        "AnabranchConnectionsRefused",
        5,
        *_each("anabranch_http_refused_total", _NODE, "0+3x20", "0+0.5x20"),
    ),
    Case(
        "AnabranchClientsRefused",
        5,
        {f'anabranch_wire_refusals_total{{{_NODE},reason="watches_per_ip"}}': "0+3x20"},
        {
            f'anabranch_wire_refusals_total{{{_NODE},reason="watches_per_ip"}}': "0+0.5x20",
            f'anabranch_wire_refusals_total{{{_NODE},reason="idle"}}': "0+9x20",
        },
    ),
    Case("AnabranchProxyDown", 2, *_each("up", _PROXY, "1 0x8", "1x9")),
    Case("AnabranchProxyReachesNobody", 2, *_each(_REACHED, _PROXY, "3 0x8", "1x9")),
    Case(
        "AnabranchProxyMissesNodes",
        7,
        {f"{_REACHED}{{{_PROXY}}}": "2x28", f"{_KNOWN}{{{_PROXY}}}": "3x28"},
        {f"{_REACHED}{{{_PROXY}}}": "2 3x28", f"{_KNOWN}{{{_PROXY}}}": "3x28"},
    ),
    Case(  # of which the page tells
        "AnabranchProxyMissesNodes",
        7,
        {},
        {f"{_REACHED}{{{_PROXY}}}": "0x28", f"{_KNOWN}{{{_PROXY}}}": "3x28"},
        0,
    ),
    Case("AnabranchDigestMismatch", 1, *_each("anabranch_digest_mismatch_total", _NODE, "1", "0")),
    Case(
        "AnabranchUnreadableRecords",
        3,
        *_each("anabranch_unreadable_records_total", _NODE, "2x6 3x6", "2x12"),
    ),
    Case("AnabranchFoldLags", 4, *_each(_LAG, _NODE, "500x16", "0x4 500 0x11")),
    Case(
        "AnabranchAppendsFail",
        3,
        *_each("anabranch_append_failures_total", _NODE, "0+1x12", "0x6 1x6"),
    ),
    Case(
        "AnabranchProposalsSlow",
        12,
        {f'{_PROPOSALS}{{{_NODE},le="{le}"}}': "0+9x48" for le in ("5", "+Inf")}
        | {f'{_PROPOSALS}{{{_NODE},le="{le}"}}': "0x48" for le in ("1", "2.5")},
        {f'{_PROPOSALS}{{{_NODE},le="{le}"}}': "0+9x48" for le in ("1", "2.5", "5", "+Inf")},
    ),
    Case(
        "AnabranchSnapshotsFail",
        10,
        *_each("anabranch_snapshots_total", f'{_NODE},result="failed"', "0x4 1x40", "7x44"),
    ),
    Case(
        "AnabranchSnapshotsFail",
        10,
        {},
        {'anabranch_snapshots_total{result="written"}': "0+1x44"},
        0,
    ),
    Case(
        "AnabranchSnapshotIsOld",
        12,
        {"anabranch_log_next_offset": "200000x48", "anabranch_snapshot_horizon_offset": "5x48"},
        {
            "anabranch_log_next_offset": "200000x48",
            "anabranch_snapshot_horizon_offset": "190000x48",
        },
    ),
    Case(
        "AnabranchArchiveStandsStill",
        40,
        {f'{_BEHIND}{{archive="a"}}': "0+3x160", f'{_SHOWN}{{archive="a"}}': "50x160"},
        {f'{_BEHIND}{{archive="a"}}': "0+3x160", f'{_SHOWN}{{archive="a"}}': "0+1x160"},
    ),
    Case(
        "AnabranchArchiveStandsStill",
        40,
        {f'{_BEHIND}{{archive="a"}}': "9x160", f'{_SHOWN}{{archive="a"}}': "50x160"},
        {f'{_BEHIND}{{archive="a"}}': "0x160", f'{_SHOWN}{{archive="a"}}': "50x160"},
    ),
    Case("AnabranchArchiveBehind", 20, *_each(_BEHIND, 'archive="a"', "200000x80", "9000x80")),
    Case(
        "AnabranchNoArchive",
        70,
        {"anabranch_log_next_offset": "200000x280"},
        {"anabranch_log_next_offset": "200000x280", f'{_SHOWN}{{archive="a"}}': "5x280"},
    ),
    Case("AnabranchNoArchive", 70, {}, {"anabranch_log_next_offset": "200x280"}, 0),
    Case(
        "AnabranchLookupsFail",
        10,
        {
            f"anabranch_lookups_cached_total{{{_NODE}}}": "0+90x40",
            f'anabranch_lookups_total{{{_NODE},outcome="deadline"}}': "0+9x40",
        },
        {
            f"anabranch_lookups_cached_total{{{_NODE}}}": "0+90x40",
            f'anabranch_lookups_total{{{_NODE},outcome="waited"}}': "0+9x40",
            f'anabranch_lookups_total{{{_NODE},outcome="deadline"}}': "0+0.1x40",
        },
    ),
    Case("AnabranchLookupsWait", 5, *_each("anabranch_waiting_lookups", _NODE, "50x20", "50 2x20")),
    Case(
        "AnabranchHandOversSlow",
        20,
        {f'{_HAND_OVERS}{{{_NODE},le="{le}"}}': "0+9x80" for le in ("10", "+Inf")}
        | {f'{_HAND_OVERS}{{{_NODE},le="{le}"}}': "0x80" for le in ("1", "5")},
        {f'{_HAND_OVERS}{{{_NODE},le="{le}"}}': "0+9x80" for le in ("1", "5", "10", "+Inf")},
    ),
    Case(
        "AnabranchBucketsUnserved",
        2,
        *_each("pulsar_scalable_topic_buckets_unserved", f'{_OF},segment="4"', "2x8", "0x8"),
    ),
    Case(
        "AnabranchBucketsWithheld",
        12,
        *_each(
            "pulsar_scalable_topic_buckets_withheld", f'{_OF},segment="4"', "1x48", "1x8 0 1x39"
        ),
    ),
    Case("AnabranchSplitsSuppressed", 15, *_each(_FULL, _TOPIC, "0+1x60", "5x60")),
    Case("AnabranchMergesSuppressed", 65, *_each(_DEEP, _TOPIC, "0+1x260", "5x260")),
    Case(
        "AnabranchTopicFlaps",
        30,
        {f"{_SPLITS}{{{_TOPIC}}}": "0+0.1x120", f"{_MERGES}{{{_TOPIC}}}": "0+0.1x120"},
        {f"{_SPLITS}{{{_TOPIC}}}": "0+0.1x120", f"{_MERGES}{{{_TOPIC}}}": "1x120"},
    ),
    Case(
        "AnabranchBacklogGrows",
        35,
        *_each("anabranch_subscription_backlog_messages", _OF, "0+900x140", "90000-90x140"),
    ),
    Case(
        "AnabranchSubscriptionExpires",
        10,
        *_each("anabranch_subscription_expires_in_seconds", _OF, "8000-15x40", "200000-15x40"),
    ),
    Case(
        "AnabranchLoadMeasuredSlowly",
        12,
        *_each("anabranch_load_round_seconds", _NODE, "12x48", "12x8 0.4 12x39"),
    ),
    Case(
        "AnabranchAuditViolation",
        1,
        {f'anabranch_audit_violations{{check="{each}"}}': "1" for each in ("seals", "leases")},
        {'anabranch_audit_violations{check="seals"}': "0"},
        firing=2,
    ),
    Case("AnabranchAuditGap", 1, *_each("anabranch_audit_exit_status", "", "3", "0")),
    Case(
        "AnabranchAuditFails", 12, *_each("anabranch_audit_exit_status", "", "2x48", "2x8 0 2x39")
    ),
    Case(
        "AnabranchAuditIsOld",
        40,
        {
            "anabranch_audit_finished_timestamp_seconds": "0x160",
            "anabranch_audit_interval_seconds": "300x160",
        },
        {
            "anabranch_audit_finished_timestamp_seconds": "0+15x160",
            "anabranch_audit_interval_seconds": "300x160",
        },
    ),
    # The first one hangs, or whoever audits is started again and again before one has ended.
    Case(
        "AnabranchAuditIsOld",
        40,
        {"anabranch_audit_interval_seconds": "300x160"},
        {
            "anabranch_audit_interval_seconds": "300x160",
            "anabranch_audit_finished_timestamp_seconds": "_x148 2220x12",
        },
    ),
    Case("AnabranchAuditIsOld", 29, {}, {"anabranch_audit_interval_seconds": "300x160"}, 0),
    Case("AnabranchAuditIsOld", 10, *_each("up", 'job="audits"', "0x40", "1x40")),
)


def _firing(alert: str, minute: int, times: int) -> dict[str, Any]:
    query = f'count(ALERTS{{alertname="{alert}",alertstate="firing"}}) or vector(0)'
    told = {"expr": query, "eval_time": f"{minute}m"}
    return {**told, "exp_samples": [{"labels": "{}", "value": times}]}


def _series(values: dict[str, str]) -> list[dict[str, str]]:
    return [{"series": name, "values": each} for name, each in values.items()]


def _tests(case: Case) -> list[dict[str, Any]]:
    told = ((case.fires, case.firing), (case.silent, 0))
    return [
        {
            "interval": _STEP,
            "input_series": _series(series),
            "promql_expr_test": [_firing(case.alert, case.minute, times)],
        }
        for series, times in told
    ]


def _promtool(folder: Path) -> list[str]:
    if shutil.which("promtool"):
        return ["promtool"]
    asked = ["docker", "image", "inspect", _IMAGE]
    if shutil.which("docker") and not subprocess.run(asked, capture_output=True).returncode:
        mounted = ("-v", f"{folder}:{folder}:ro", "--entrypoint", "promtool")
        return ["docker", "run", "--rm", *mounted, _IMAGE]
    pytest.skip("NO ALERT WAS TESTED: promtool is missing (Debian: apt-get install prometheus)")


def test_every_alert_has_a_case() -> None:
    assert {case.alert for case in CASES} == set(of_alerts())


def _written(folder: Path, number: int, case: Case) -> Path:
    """The case beside its rule: promtool evaluates every rule of a file at each step."""
    (folder / f"{case.alert}.json").write_text(
        json.dumps({"groups": [{"name": "one", "rules": [rules_of_alerts()[case.alert]]}]})
    )
    told = {
        "rule_files": [f"{case.alert}.json"],
        "evaluation_interval": _STEP,
        "tests": _tests(case),
    }
    file = folder / f"case-{number}.json"  # which is YAML, too
    file.write_text(json.dumps(told))
    return file


def test_every_alert_fires_when_it_should_and_only_then(tmp_path: Path) -> None:
    files = [str(_written(tmp_path, number, case)) for number, case in enumerate(CASES)]
    tmp_path.chmod(0o755)  # promtool of the image is somebody else
    answer = subprocess.run(
        [*_promtool(tmp_path), "test", "rules", *files],
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert answer.stdout.count("SUCCESS") == len(CASES)


def test_promtool_takes_the_files_as_they_are(tmp_path: Path) -> None:
    shutil.copytree(ALERTS.parent, tmp_path, dirs_exist_ok=True)
    tmp_path.chmod(0o755)
    answer = subprocess.run(
        [*_promtool(tmp_path), "check", "config", str(tmp_path / "prometheus.yml")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert f"{len(of_alerts())} rules found" in answer.stdout
