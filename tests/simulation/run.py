"""Runs a seed: `PYTHONPATH=tests .venv/bin/python -m simulation.run --world topics --seed 7`."""

from __future__ import annotations

import argparse
import sys

import msgspec

from simulation.audits import accuse_nobody
from simulation.clients import Clients
from simulation.cluster import Cluster
from simulation.faults import Weather
from simulation.plan import draw
from simulation.scheduler import Scheduler, ViolationError
from simulation.topic_plan import draw_topics, with_topics
from simulation.topic_world import TopicWorld

WORLDS = ("cluster", "topics")
REST_WITHIN_S = 60.0  # after the faults; see docs/simulation.md
START_WITHIN_S = 2.0


class Report(msgspec.Struct, frozen=True):
    """What came of one seed."""

    world: str
    seed: int
    violation: str  # "" for none
    fingerprint: str
    nodes: int
    simulated_s: float
    rest_s: float  # from the end of the faults until all was at rest
    events: int
    accepted: dict[str, int]
    rejected: dict[str, int]
    busiest_second: int
    seen: dict[str, int] = {}  # what happened to topics
    trace: tuple[str, ...] = ()

    def explain(self) -> str:
        """The violation, and how to see it again."""
        command = "PYTHONPATH=tests .venv/bin/python -m simulation.run"
        again = f"{command} --world {self.world} --seed {self.seed} --trace"
        return f"seed {self.seed}: {self.violation}\nagain: {again}"


def simulate(seed: int, world: str, *, keep_trace: bool = False) -> Report:
    """One run from start to rest: of a cluster, and of scalable topics in it."""
    sched = Scheduler(seed, keep_trace=keep_trace)
    plan = draw(sched.rng)
    topics: TopicWorld | None = None
    if world == "topics":
        cluster = Cluster(sched, with_topics(plan, sched.rng))
        topics = TopicWorld(cluster, draw_topics(sched.rng))
    else:
        cluster = Cluster(sched, plan)
    for process in cluster.processes:
        sched.at(sched.rng.uniform(0.0, START_WITHIN_S), process.start)
    Weather(cluster).start()
    Clients(cluster).start()
    if topics is not None:
        topics.start()
    violation = ""
    try:
        sched.run_until(cluster.plan.faults_end_s)
        _come_to_rest(cluster)
    except ViolationError as found:
        violation = f"at {sched.now:.3f} s: {found}"
    return Report(
        world=world,
        seed=seed,
        violation=violation,
        fingerprint=sched.fingerprint,
        nodes=cluster.plan.nodes,
        simulated_s=sched.now,
        rest_s=max(0.0, sched.now - cluster.plan.faults_end_s),
        events=sched.events,
        accepted=cluster.checks.accepted,
        rejected=cluster.checks.rejected,
        busiest_second=cluster.checks.busiest_second,
        seen=topics.seen() if topics is not None else {},
        trace=tuple(sched.trace or ()),
    )


def _come_to_rest(cluster: Cluster) -> None:
    sched = cluster.sched
    deadline = sched.now + REST_WITHIN_S
    while unsettled := _unsettled(cluster):
        if sched.now >= deadline:
            raise ViolationError(f"not at rest after {REST_WITHIN_S:.0f} s: {unsettled[:5]}")
        sched.run_until(sched.now + 0.5)
    cluster.checks.views_agree()
    if cluster.world is not None:
        cluster.world.judge()
    accuse_nobody(cluster)


def _unsettled(cluster: Cluster) -> list[str]:
    found = cluster.checks.unsettled()
    return found if found or cluster.world is None else cluster.world.unsettled()


def main() -> int:
    parser = argparse.ArgumentParser(description="Simulate one cluster from one seed.")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--world", choices=WORLDS, required=True)
    parser.add_argument("--trace", action="store_true", help="print every event that mattered")
    options = parser.parse_args()
    report = simulate(options.seed, options.world, keep_trace=options.trace)
    for line in report.trace:
        sys.stdout.write(line + "\n")
    shown = msgspec.structs.replace(report, trace=())
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(shown), indent=2).decode() + "\n")
    if report.violation:
        sys.stdout.write(report.explain() + "\n")
    return 1 if report.violation else 0


if __name__ == "__main__":
    sys.exit(main())
