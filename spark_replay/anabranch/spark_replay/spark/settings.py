"""The place of a job's Spark, and its resources."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from anabranch.core.errors import InvalidInputError

LOCAL: Final = "local[*]"
_LOCAL: Final = re.compile(r"local(\[(\*|[1-9][0-9]*)\])?")
_MASTER: Final = re.compile(r"(?P<host>[^:/\s]+|\[[0-9A-Fa-f:]+\]):(?P<port>[0-9]{1,5})")

Address = tuple[str, int]


class SparkSettings(msgspec.Struct, frozen=True):
    """The master, and Spark's own settings, which have the last word.

    Raises InvalidInputError for a master that Anabranch does not run on.
    """

    master: str = LOCAL
    conf: Mapping[str, str] = {}

    def __post_init__(self) -> None:
        if self.is_cluster:
            _ = self.masters
        elif not _LOCAL.fullmatch(self.master):
            raise InvalidInputError(
                f"{self.master!r} is no master that Anabranch runs on: name a standalone one, "
                "spark://HOST:PORT, or several, spark://HOST:PORT,HOST:PORT, or local[*] for this "
                "machine"
            )
        if "spark.master" in self.conf:
            raise InvalidInputError("spark.master is said by --master, not by --spark-conf")

    @property
    def is_cluster(self) -> bool:
        """True if tasks run in other processes than the driver's."""
        return self.master.startswith("spark://")

    @property
    def masters(self) -> list[Address]:
        """Returns the addresses of a standalone Spark's masters, one of which is in charge."""
        found: list[Address] = []
        for one in self.master.removeprefix("spark://").split(","):
            match = _MASTER.fullmatch(one.strip())
            if match is None or not 0 < int(match["port"]) < 65_536:
                raise InvalidInputError(
                    f"{self.master!r} names no master: write spark://HOST:PORT (7077 unless the "
                    "master was told otherwise), or spark://HOST:PORT,HOST:PORT"
                )
            found.append((match["host"].strip("[]"), int(match["port"])))
        return found
