"""The weather: what goes wrong, drawn from the plan's kinds at the plan's pace."""

from __future__ import annotations

import math
from functools import partial

from simulation.cluster import Cluster
from simulation.plan import LOG_CUTS
from simulation.process import DIRECTIONS, Process

CUTS = {
    "cut_both": ("sends", "reads", "acks"),
    "cut_log": LOG_CUTS,
    **{f"cut_{direction}": (direction,) for direction in DIRECTIONS},
}


class Weather:
    """Makes faults until the plan's end, then takes all of them back."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._sched = cluster.sched
        self._plan = cluster.plan

    def start(self) -> None:
        self._sched.after(self._next_s(), self._strike)
        self._sched.after(self._plan.compact_interval_s, self._compact)
        self._sched.after(1.0, self._flush)
        self._sched.at(self._plan.faults_end_s, self._clear)

    def _next_s(self) -> float:
        return self._sched.rng.expovariate(1.0 / self._plan.fault_interval_s)

    def _compact(self) -> None:
        self._cluster.compact()
        self._sched.after(self._plan.compact_interval_s, self._compact)

    def _flush(self) -> None:
        for process in self._cluster.processes:
            if self._sched.chance(0.5):
                process.flush()
        self._sched.after(1.0, self._flush)

    def _strike(self) -> None:
        if self._cluster.faults_over:
            return
        kind = self._sched.rng.choice(self._plan.fault_kinds)
        victim = self._cluster.processes[self._sched.rng.choice(self._plan.fragile)]
        self._sched.after(self._next_s(), self._strike)
        if not victim.alive:
            return
        self._sched.note(f"fault {kind} {victim.name}")
        if kind == "outage":
            for process in self._cluster.processes:
                self._cut(process, "cut_both")
        elif kind in ("crash", "restart"):
            self._crash(victim, quick=kind == "restart")
        elif kind == "pause":
            victim.pause(self._duration_s())
        elif kind == "drain":
            victim.drain()
            self._sched.after(self._sched.rng.uniform(5.0, 15.0), partial(self._revive, victim))
        elif kind == "slow":
            victim.read_delay_s = self._sched.rng.uniform(0.5, 4.0)
            self._sched.after(self._duration_s(), partial(self._quicken, victim))
        else:
            self._cut(victim, kind)

    def _duration_s(self) -> float:
        """Often about as long as a lease or a time-out, where the races are."""
        return (
            self._sched.rng.choice((0.5, 3.5, 6.0, 6.5, 7.0, 8.0, 9.0, 12.0, 18.0))
            + self._jitter_s()
        )

    def _jitter_s(self) -> float:
        return self._sched.rng.uniform(0.0, 1.0)

    def _crash(self, victim: Process, *, quick: bool) -> None:
        victim.crash(keeps_disk=self._sched.chance(0.5))
        self._sched.after(self._jitter_s() if quick else self._duration_s(), victim.start)

    def _revive(self, victim: Process) -> None:
        if victim.leaves:
            victim.crash()  # it did not make it in time: killed
            victim.start()
        elif not victim.alive:
            victim.start()

    def _quicken(self, victim: Process) -> None:
        victim.read_delay_s = 0.0

    def _cut(self, victim: Process, kind: str) -> None:
        """Each direction for a time of its own, so that they heal in any order."""
        victim.link.holds_back = self._sched.chance(0.5)
        for direction in DIRECTIONS:
            if direction in CUTS[kind]:
                duration_s = self._duration_s()
                victim.link.cut(direction, duration_s)
                self._sched.after(duration_s, victim.plan_read)

    def _clear(self) -> None:
        """Faults end; messages that are on their way, and slow closings, go on."""
        self._sched.note("faults_over")
        self._cluster.faults_over = True
        for process in self._cluster.processes:
            process.link.mend()
            process.read_delay_s = 0.0
            process.resume()
            self._revive(process)
            process.plan_read()
        if self._plan.exile >= 0:
            self._exile(self._cluster.processes[self._plan.exile])

    def _exile(self, victim: Process) -> None:
        self._sched.note(f"exile {victim.name}")
        victim.exiled, victim.link.holds_back = True, False
        for direction in self._plan.exile_cuts:
            victim.link.cut(direction, math.inf)
