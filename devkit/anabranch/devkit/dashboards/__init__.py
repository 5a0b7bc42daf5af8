"""Grafana's dashboards of a cluster, as data; `make dashboards` writes their JSON."""

from typing import Final

from anabranch.devkit.dashboards.balance import BALANCE
from anabranch.devkit.dashboards.cluster import HEALTH, LOG, OWNERSHIP
from anabranch.devkit.dashboards.proxies import PROXIES
from anabranch.devkit.dashboards.topic_lists import TOPIC_LISTS
from anabranch.devkit.dashboards.topics import CLIENTS, TOPICS

DASHBOARDS: Final = (OWNERSHIP, BALANCE, TOPICS, CLIENTS, TOPIC_LISTS, PROXIES, LOG, HEALTH)
