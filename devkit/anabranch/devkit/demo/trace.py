"""The demo's trace: the sub-projects that OpenStack merged, in that order (data/README.md)."""

from __future__ import annotations

import csv
import gzip
import io
from importlib.resources import files
from typing import Final

_FILE: Final = "data/openstack_merges_sample.csv.gz"


def load_keys() -> list[str]:
    """The sub-project of each merge."""
    packed = files(__package__).joinpath(_FILE).read_bytes()
    return [row["key"] for row in csv.DictReader(io.StringIO(gzip.decompress(packed).decode()))]
