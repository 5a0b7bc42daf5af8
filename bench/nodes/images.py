"""A container of a node's image, from `docker run` to its first right look-up.

Its Kafka is the place's, reached by the network of the host.
"""

from __future__ import annotations

import http.client
import json
import os
import statistics
import subprocess
import time
import urllib.request
from typing import Final

from anabranch.devkit import ports
from anabranch.devkit.nodes import HOST, ON_ONE_MACHINE
from bench.figure import Measured
from bench.place import Place

IMAGE: Final = f"anabranch-node:{os.environ.get('STACK_TAG', 'dev')}"
_PREFIX: Final = "bench-image."
_LOOKUP: Final = "/lookup/v2/topic/persistent/public/default/orders"
_REPEATS: Final = 5
_PROBE_S: Final = 0.02
_START_S_MAX: Final = 120.0
_STOP_S: Final = 60


def start(place: Place) -> Measured:
    """Containers of one cluster one after the other, each with an empty disk.

    The first makes the cluster's topics, and so is not counted. Raises RuntimeError where Docker
    does not answer, or has no such image.
    """
    if subprocess.run(["docker", "image", "inspect", IMAGE], capture_output=True).returncode:
        raise RuntimeError(f"Docker has no {IMAGE}: start Docker, and `make images`")
    first = _first_lookup_s(place)
    starts, bare = [], []
    for _ in range(_REPEATS):
        starts.append(_first_lookup_s(place))
        bare.append(_bare_s())
    value = statistics.median(starts)
    return Measured(
        value,
        "s",
        value,
        3.0,
        limit=statistics.median(bare),
        limit_what="a container of the same image whose Python does nothing, to its end",
        details={"starts_s": starts, "makes_the_topics_s": first},
    )


def _first_lookup_s(place: Place) -> float:
    port = ports.free_port(HOST)
    settings = [
        *ON_ONE_MACHINE,
        f"topicPrefix={_PREFIX}",
        f"webServicePort={port}",
        "brokerServicePort=0",
        "logLevel=warning",
    ]
    options = [each for setting in settings for each in ("--set", setting)]
    bootstrap = ("--bootstrap-servers", place.kafka.bootstrap_servers)
    name = f"bench-image-{os.getpid()}-{place.number()}"
    began = time.monotonic()
    run = ["docker", "run", "--detach", "--rm", "--name", name, "--network", "host", IMAGE]
    subprocess.run([*run, "node", *bootstrap, *options], check=True, stdout=subprocess.DEVNULL)
    try:
        while not _is_right(port):
            if time.monotonic() - began > _START_S_MAX:
                raise RuntimeError(f"{name} answered no look-up within {_START_S_MAX:g} s")
            time.sleep(_PROBE_S)
        return time.monotonic() - began
    finally:
        stop = ["docker", "stop", "--time", str(_STOP_S), name]
        subprocess.run(stop, check=True, stdout=subprocess.DEVNULL)


def _is_right(port: int) -> bool:
    """Whether the node there names itself as the owner, the only one there is."""
    try:
        with urllib.request.urlopen(f"http://{HOST}:{port}{_LOOKUP}", timeout=5.0) as answer:
            return bool(json.load(answer)["httpUrl"] == f"http://{HOST}:{port}")
    except (OSError, http.client.HTTPException):
        return False


def _bare_s() -> float:
    began = time.monotonic()
    run = ["docker", "run", "--rm", "--network", "host", "--entrypoint", "python", IMAGE]
    subprocess.run([*run, "-c", "pass"], check=True)
    return time.monotonic() - began
