"""What topic lists take of memory on nodes and proxies, and who waits for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from anabranch.devkit.dashboards.grafana import (
    RATE_INTERVAL,
    Dashboard,
    Panel,
    PanelUnit,
    Query,
    lines,
    number,
)

_KINDS: Final = {"heap": "Lists that are assembled", "direct": "Lists that wait on connections"}


def _panels(who: str) -> Iterator[Panel]:
    for kind, title in _KINDS.items():
        metric = f"pulsar_{who}_topic_list_{kind}"
        yield lines(
            f"{title} ({who})",
            PanelUnit.BYTES,
            "What is held, and how much may be; a limit of 0 is none.",
            Query(f"{metric}_memory_used_bytes", "{{instance}}"),
            Query(f"max({metric}_memory_limit_bytes)", "limit"),
        )
        yield lines(
            f"{title}: who waits for memory ({who})",
            PanelUnit.COUNT,
            "Requests in the queue, how many may be, and those that waited for too long, a second.",
            Query(f"{metric}_queue_size", "{{instance}}"),
            Query(f"max({metric}_queue_max_size)", "limit"),
            Query(
                f"sum by (instance) (rate({metric}_timeout_total{RATE_INTERVAL}))",
                "{{instance}} time-outs",
            ),
        )
        rate = f"sum by (le) (rate({metric}_wait_time_ms_bucket{RATE_INTERVAL}))"
        yield lines(
            f"{title}: how long they wait ({who})",
            PanelUnit.COUNT,
            "Milliseconds, as far as the histogram's bounds tell.",
            *(
                Query(f"histogram_quantile({share}, {rate})", f"p{share * 100:.0f}")
                for share in (0.5, 0.99)
            ),
        )


TOPIC_LISTS: Final = Dashboard(
    "topic-lists",
    "topic lists",
    of_topics=False,
    panels=(
        number("Lists", "max(anabranch_topic_lists)", "That the node with most of them keeps."),
        number("Watches", "sum(anabranch_topic_list_watches)", "Of lists, on all nodes."),
        lines(
            "Lists given up",
            PanelUnit.COUNT,
            "That took too much of a node's time, in five minutes.",
            Query("increase(anabranch_topic_lists_given_up_total[5m])", "{{instance}}"),
        ),
        *_panels("broker"),
        *_panels("proxy"),
    ),
)
