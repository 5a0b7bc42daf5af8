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
_MEMORY: Final = re.compile(r"[1-9][0-9]*[kmgt]", re.IGNORECASE)

Address = tuple[str, int]


class SparkSettings(msgspec.Struct, frozen=True):
    """The master and the requested resources. Raises InvalidInputError for values that Spark would
    not take.

    `cores` is the sum of all executors, 0 for all that there are. `driver_host` is the address of
    this process for executors, "" for this machine's address on the way to the master. `conf` goes
    to Spark unchanged, and has the last word.
    """

    master: str = LOCAL
    driver_memory: str = ""  # "": a third of the machine's, within bounds
    executor_memory: str = "1g"
    cores: int = 0
    driver_host: str = ""
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
        for memory in (self.driver_memory, self.executor_memory):
            if memory and not _MEMORY.fullmatch(memory):
                raise InvalidInputError(f"{memory!r} is no size of memory: write 512m, or 4g")
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
