"""The weather: what goes wrong, drawn from the plan's kinds at the plan's pace."""

from __future__ import annotations

from functools import partial

from simulation.cluster import Cluster
from simulation.process import Link, Process


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
        if self._cluster.calm:
            return
        kind = self._sched.rng.choice(self._plan.fault_kinds)
        victim = self._sched.rng.choice(self._cluster.processes)
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
        self._sched.after(self._next_s(), self._strike)

    def _duration_s(self) -> float:
        """Often about as long as a lease or a time-out, where the races are."""
        return self._sched.rng.choice((0.5, 3.0, 4.0, 5.0, 6.0, 7.0, 9.0, 14.0)) + self._jitter_s()

    def _jitter_s(self) -> float:
        return self._sched.rng.uniform(0.0, 1.0)

    def _crash(self, victim: Process, *, quick: bool) -> None:
        victim.crash(keeps_disk=self._sched.chance(0.5))
        delay_s = self._jitter_s() if quick else self._duration_s()
        self._sched.after(delay_s, victim.start)

    def _revive(self, victim: Process) -> None:
        if victim.leaves:
            victim.crash()  # it did not make it in time: killed
            victim.start()
        elif not victim.alive:
            victim.start()

    def _quicken(self, victim: Process) -> None:
        victim.read_delay_s = 0.0

    def _cut(self, victim: Process, kind: str) -> None:
        link = victim.link
        link.holds_back = self._sched.chance(0.5)
        if kind in ("cut_both", "cut_send"):
            link.sends = False
            self._sched.after(self._duration_s(), partial(self._mend, victim, "sends"))
        if kind in ("cut_both", "cut_read"):
            link.reads = False
            self._sched.after(self._duration_s(), partial(self._mend, victim, "reads"))
        if kind in ("cut_both", "cut_acks"):
            link.acks = False
            self._sched.after(self._duration_s(), partial(self._mend, victim, "acks"))

    def _mend(self, victim: Process, direction: str) -> None:
        setattr(victim.link, direction, True)
        victim.plan_read()

    def _clear(self) -> None:
        """Faults end; messages that are on their way, and slow closings, go on."""
        self._sched.note("calm")
        self._cluster.calm = True
        for process in self._cluster.processes:
            process.link = Link()
            process.read_delay_s = 0.0
            process.resume()
            self._revive(process)
            process.plan_read()
