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
_SEGMENT: Final = f'{_OF},segment="4"'


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


def _one(alert: str, minute: int, metric: str, loud: str, quiet: str, labels: str = _NODE) -> Case:
    """Of an alert that looks at one series."""
    series = f"{metric}{{{labels}}}"
    return Case(alert, minute, {series: loud}, {series: quiet})


def _never(alert: str, minute: int, series: dict[str, str]) -> Case:
    """The alert fires on none of these series."""
    return Case(alert, minute, {}, series, 0)


_PROXY: Final = 'job="proxies",instance="p1"'
_REACHED: Final = "anabranch_proxy_nodes_answering"
_KNOWN: Final = "anabranch_proxy_nodes"
_LAG: Final = "anabranch_fold_lag_records"
_PROPOSALS: Final = "anabranch_proposal_seconds_bucket"
_HAND_OVERS: Final = "anabranch_hand_over_seconds_bucket"
_LAPSES: Final = "anabranch_session_lapses_total"
_SNAPSHOTS: Final = "anabranch_snapshots_total"
_UNSERVED: Final = "pulsar_scalable_topic_buckets_unserved"
_FOUND: Final = "anabranch_segment_findings"
_WITHHELD: Final = "pulsar_scalable_topic_buckets_withheld"
_BACKLOG: Final = "anabranch_subscription_backlog_messages"
_EXPIRES: Final = "anabranch_subscription_expires_in_seconds"
_LETTERS: Final = "anabranch_dead_letters_waiting"
_ROUND: Final = "anabranch_load_round_seconds"
_EXIT: Final = "anabranch_audit_exit_status"
_SHOWN: Final = "anabranch_archive_next_offset"
_BEHIND: Final = "anabranch_archive_behind_records"
_SPLITS: Final = "pulsar_scalable_topic_auto_splits_total"
_MERGES: Final = "pulsar_scalable_topic_auto_merges_total"
_DEEP: Final = "pulsar_scalable_topic_merge_suppressed_max_depth_total"
_FULL: Final = "pulsar_scalable_topic_split_suppressed_max_segments_total"

_LISTS: Final = ("pulsar_broker_topic_list_heap", "pulsar_proxy_topic_list_direct")
_CLUSTER: Final = 'job="anabranch",instance="n1",cluster="river"'


def _of(
    alert: str, minute: int, series: tuple[str, str], loud: tuple[str, str], quiet: tuple[str, str]
) -> Case:
    """Of an alert that compares two series."""
    fires, silent = (dict(zip(series, values, strict=True)) for values in (loud, quiet))
    return Case(alert, minute, fires, silent)


def _slow(
    alert: str, minute: int, metric: str, quick: tuple[str, ...], late: tuple[str, ...]
) -> Case:
    """All that is counted takes longer than `quick` where it fires, and no longer elsewhere."""

    def counted(none: tuple[str, ...]) -> dict[str, str]:
        known = {le: "0x80" if le in none else "0+9x80" for le in (*quick, *late, "+Inf")}
        return {f'{metric}{{{_NODE},le="{le}"}}': values for le, values in known.items()}

    return Case(alert, minute, counted(quick), counted(()))


_LEADS: Final = (f"anabranch_is_leader{{{_NODE}}}", f"anabranch_is_leader{{{_OTHER}}}")
_BROKERS: Final = (f"anabranch_brokers{{{_NODE}}}", f"anabranch_brokers{{{_OTHER}}}")
_PROXIED: Final = (f"{_REACHED}{{{_PROXY}}}", f"{_KNOWN}{{{_PROXY}}}")
_HORIZON: Final = ("anabranch_log_next_offset", "anabranch_snapshot_horizon_offset")
_ARCHIVED: Final = (f'{_BEHIND}{{archive="a"}}', f'{_SHOWN}{{archive="a"}}')
_CHANGED: Final = (f"{_SPLITS}{{{_TOPIC}}}", f"{_MERGES}{{{_TOPIC}}}")
_AUDITED: Final = ("anabranch_audit_finished_timestamp_seconds", "anabranch_audit_interval_seconds")


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
    _never(
        "AnabranchTopicListMemoryFills",
        3,
        {
            f"{_LISTS[0]}_memory_used_bytes{{{_CLUSTER}}}": "9x12",
            f"{_LISTS[0]}_memory_limit_bytes{{{_CLUSTER}}}": "0x12",
        },
    ),
)
CASES: Final = (
    *_TOPIC_LISTS,
    _one("AnabranchNodeDown", 2, "up", "1 1 0x8", "1 1 1 1 1 1 1 0x1"),
    _one("AnabranchNotServing", 2, "anabranch_serving", "1 0x8", "0 0 1x8"),
    _of("AnabranchNoLeader", 2, _LEADS, ("0x8", "1 0x8"), ("0x8", "1x8")),
    Case("AnabranchNoLeader", 2, {}, {f"anabranch_is_leader{{{_NODE}}}": "0 1x8"}),
    _of("AnabranchTwoLeaders", 2, _LEADS, ("1x8", "0 1x8"), ("1x8", "1 0x8")),
    _of("AnabranchNodesDisagree", 3, _BROKERS, ("3x12", "3 2x12"), ("3 2x12", "3 3 2x12")),
    _one("AnabranchSessionLapsed", 3, _LAPSES, "4x6 5x6", "4x12"),
    _one("AnabranchSessionLapsesOften", 20, _LAPSES, "0+0.1x80", "0x40 1x40"),
    _one("AnabranchConcern", 3, "anabranch_concerns", "0 1x12", "1 0x12"),
    _one("AnabranchConnectionsRefused", 5, "anabranch_http_refused_total", "0+3x20", "0+0.5x20"),
    Case(
        "AnabranchClientsRefused",
        5,
        {f'anabranch_wire_refusals_total{{{_NODE},reason="watches"}}': "0+3x20"},
        {
            f'anabranch_wire_refusals_total{{{_NODE},reason="watches"}}': "0+0.5x20",
            f'anabranch_wire_refusals_total{{{_NODE},reason="idle"}}': "0+9x20",
        },
    ),
    _one("AnabranchProxyDown", 2, "up", "1 0x8", "1x9", _PROXY),
    _one("AnabranchProxyReachesNobody", 2, _REACHED, "3 0x8", "1x9", _PROXY),
    _of("AnabranchProxyMissesNodes", 7, _PROXIED, ("2x28", "3x28"), ("2 3x28", "3x28")),
    _never(  # the page tells of it
        "AnabranchProxyMissesNodes", 7, dict(zip(_PROXIED, ("0x28", "3x28"), strict=True))
    ),
    _one("AnabranchDigestMismatch", 1, "anabranch_digest_mismatch_total", "1", "0"),
    _one("AnabranchUnreadableRecords", 3, "anabranch_unreadable_records_total", "2x6 3x6", "2x12"),
    _one("AnabranchFoldLags", 4, _LAG, "500x16", "0x4 500 0x11"),
    _one("AnabranchAppendsFail", 3, "anabranch_append_failures_total", "0+1x12", "0x6 1x6"),
    _slow("AnabranchProposalsSlow", 12, _PROPOSALS, ("1", "2.5"), ("5",)),
    _one("AnabranchSnapshotsFail", 10, _SNAPSHOTS, "0x4 1x40", "7x44", f'{_NODE},result="failed"'),
    _never("AnabranchSnapshotsFail", 10, {f'{_SNAPSHOTS}{{result="written"}}': "0+1x44"}),
    _of("AnabranchSnapshotIsOld", 12, _HORIZON, ("200000x48", "5x48"), ("200000x48", "190000x48")),
    _of(
        "AnabranchArchiveStandsStill", 40, _ARCHIVED, ("0+3x160", "50x160"), ("0+3x160", "0+1x160")
    ),
    _of("AnabranchArchiveStandsStill", 40, _ARCHIVED, ("9x160", "50x160"), ("0x160", "50x160")),
    _one("AnabranchArchiveBehind", 20, _BEHIND, "200000x80", "9000x80", 'archive="a"'),
    Case(
        "AnabranchNoArchive",
        70,
        {"anabranch_log_next_offset": "200000x280"},
        {"anabranch_log_next_offset": "200000x280", f'{_SHOWN}{{archive="a"}}': "5x280"},
    ),
    _never("AnabranchNoArchive", 70, {"anabranch_log_next_offset": "200x280"}),
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
    _one("AnabranchLookupsWait", 5, "anabranch_waiting_lookups", "50x20", "50 2x20"),
    _slow("AnabranchHandOversSlow", 20, _HAND_OVERS, ("1", "5"), ("10",)),
    _one("AnabranchBucketsUnserved", 2, _UNSERVED, "2x8", "0x8", _SEGMENT),
    _one("AnabranchSegmentChanged", 2, _FOUND, "1x8", "0x8", 'topic="t",finding="missing"'),
    _one("AnabranchBucketsWithheld", 12, _WITHHELD, "1x48", "1x8 0 1x39", _SEGMENT),
    _one("AnabranchSplitsSuppressed", 15, _FULL, "0+1x60", "5x60", _TOPIC),
    _one("AnabranchMergesSuppressed", 65, _DEEP, "0+1x260", "5x260", _TOPIC),
    _of("AnabranchTopicFlaps", 30, _CHANGED, ("0+0.1x120", "0+0.1x120"), ("0+0.1x120", "1x120")),
    _one("AnabranchBacklogGrows", 35, _BACKLOG, "0+900x140", "90000-90x140", _OF),
    _one("AnabranchSubscriptionExpires", 10, _EXPIRES, "8000-15x40", "200000-15x40", _OF),
    _one("AnabranchDeadLettersWait", 5, _LETTERS, "2x20", "0x20", _OF),
    _one("AnabranchLoadMeasuredSlowly", 12, _ROUND, "12x48", "12x8 0.4 12x39"),
    Case(
        "AnabranchAuditViolation",
        1,
        {f'anabranch_audit_violations{{check="{each}"}}': "1" for each in ("seals", "leases")},
        {'anabranch_audit_violations{check="seals"}': "0"},
        firing=2,
    ),
    _one("AnabranchAuditGap", 1, _EXIT, "3", "0", ""),
    _one("AnabranchAuditFails", 12, _EXIT, "2x48", "2x8 0 2x39", ""),
    _of("AnabranchAuditIsOld", 40, _AUDITED, ("0x160", "300x160"), ("0+15x160", "300x160")),
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
    _never("AnabranchAuditIsOld", 29, {"anabranch_audit_interval_seconds": "300x160"}),
    _one("AnabranchAuditIsOld", 10, "up", "0x40", "1x40", 'job="audits"'),
)


def _firing(alert: str, minute: int, times: int) -> dict[str, Any]:
    query = f'count(ALERTS{{alertname="{alert}",alertstate="firing"}}) or vector(0)'
    told = {"expr": query, "eval_time": f"{minute}m"}
    return {**told, "exp_samples": [{"labels": "{}", "value": times}]}


def _series(values: dict[str, str]) -> list[dict[str, str]]:
    return [{"series": name, "values": each} for name, each in values.items()]


def _tests(case: Case) -> list[dict[str, Any]]:
    return [
        {
            "interval": _STEP,
            "input_series": _series(series),
            "promql_expr_test": [_firing(case.alert, case.minute, times)],
        }
        for series, times in ((case.fires, case.firing), (case.silent, 0))
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
        [*_promtool(tmp_path), "test", "rules", *files], capture_output=True, text=True, check=False
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
