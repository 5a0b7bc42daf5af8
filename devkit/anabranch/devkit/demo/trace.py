"""The demo's trace: events of OpenStack's merge history as look-ups of topics (data/README.md)."""

from __future__ import annotations

import csv
import gzip
import io
from importlib.resources import files
from typing import Final

import msgspec

from anabranch.core import names
from anabranch.core.names import Namespace, Topic

_FILE: Final = "data/openstack_merges_sample.csv.gz"
# Which part of the sub-projects' names tells their kind, the first that fits; bundles are chosen
# so that small and large namespaces are among them.
_HOMES: Final = (
    (("-specs",), "planning/specs", 2),
    (("puppet-", "tripleo", "tuskar", "instack"), "deployment/installers", 4),
    (("python-", "os-", "oslo", "client"), "libraries/shared", 8),
    (("manual", "api-site", "guide", "docs", "groups"), "documents/published", 2),
    (("devstack", "project-config", "zuul", "nodepool", "jenkins", "infra"), "testing/gates", 4),
    (("",), "services/core", 8),
)
NAMESPACES: Final = {Namespace(home): bundles for _, home, bundles in _HOMES}


class Event(msgspec.Struct, frozen=True):
    """One look-up: when, in seconds from the start, and of what."""

    at_s: float
    topic: Topic
    namespace: Namespace


def load(duration_s: float) -> list[Event]:
    """All events in their order, their time scaled to `duration_s` as a whole."""
    packed = files(__package__).joinpath(_FILE).read_bytes()
    rows = list(csv.DictReader(io.StringIO(gzip.decompress(packed).decode())))
    first, last = int(rows[0]["ts"]), int(rows[-1]["ts"])
    scale = duration_s / (last - first)
    events = []
    for row in rows:
        home = home_of(row["key"])
        topic = names.topic(home, row["key"])
        events.append(Event((int(row["ts"]) - first) * scale, topic, home))
    return events


def home_of(key: str) -> Namespace:
    """The namespace that a sub-project's events go to.

    >>> home_of("nova"), home_of("nova-specs"), home_of("python-novaclient")
    ('services/core', 'planning/specs', 'libraries/shared')
    """
    home = next(home for parts, home, _ in _HOMES if any(part in key for part in parts))
    return Namespace(home)
