"""What a consumer and a node of the simulation talk over: in order, until one side ends it."""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING

from anabranch.client._consumer.assignment import Assignment
from simulation.process import Process
from simulation.scheduler import Action

if TYPE_CHECKING:
    from simulation.consumers import Consumer
    from simulation.topic_world import TopicWorld


class Connection:
    """One connection between a consumer and a process: in order, until somebody ends it."""

    def __init__(self, world: TopicWorld, consumer: Consumer, process: Process) -> None:
        self.number = world.new_number()
        self.process = process
        self.is_open = True
        self.is_answered = False  # the consumer's Subscribe is, by what came down first
        self._world = world
        self._consumer = consumer
        self._lives = (consumer.life, process.life)
        self._up_at = self._down_at = 0.0
        self._ups: deque[Action] = deque()  # arrived, and not taken by a node that is paused
        self._downs: deque[Action] = deque()

    def up(self, action: Action) -> None:
        """To the node."""
        self._up_at = max(self._up_at, self._arrival())
        self._world.sched.at(self._up_at, partial(self._arrive_up, action))

    def down(self, action: Action) -> None:
        """To the consumer."""
        self._down_at = max(self._down_at, self._arrival())
        self._world.sched.at(self._down_at, partial(self._arrive_down, action))

    def assign(self, told: Assignment) -> None:
        """The node tells what the consumer may serve."""
        self.down(partial(self._consumer.assigned, self, told))

    def refuse(self, *, gone: bool) -> None:
        """The node does not take the consumer. `gone`: what it was subscribed to is."""
        answer = partial(self._consumer.disconnected, self)
        self.down(self._consumer.begin_anew if gone else answer)

    def fence(self) -> None:
        """The node tells that another process has the consumer's name."""
        self.down(self._consumer.fenced)

    def left(self) -> None:
        """The node counts on the consumer no more: its process ends."""
        self.down(self._consumer.left)

    def end(self, *, by_consumer: bool) -> None:
        """The other side hears of it, or has to find out by itself."""
        if not self.is_open:
            return
        self.is_open = False
        rng = self._world.sched.rng
        if by_consumer and (self._world.faults_over or rng.random() < 0.8):
            host = self._world.hosts.get(self.process.name)
            if host is not None:
                closed = partial(host.closed, self.number, hung_up=not self._consumer.alive)
                later = partial(self.process.run_in, self._lives[1], closed)
                self._world.sched.after(rng.uniform(0.0, 0.5), later)
        elif not by_consumer:
            lost = partial(self._consumer.run_in, self._lives[0], self._lost)
            self._world.sched.after(rng.uniform(0.0, 0.5), lost)

    def _lost(self) -> None:
        self._consumer.disconnected(self)

    def _arrival(self) -> float:
        return max(self._world.sched.now, self._consumer.cut_until) + self._world.store.latency_s()

    def _arrive_up(self, action: Action) -> None:
        self._ups.append(action)
        self.process.run_in(self._lives[1], self._take_up)

    def _take_up(self) -> None:
        action = self._ups.popleft()
        if self.is_open:
            action()

    def _arrive_down(self, action: Action) -> None:
        self._downs.append(action)
        self._consumer.run_in(self._lives[0], self._take_down)

    def _take_down(self) -> None:
        action = self._downs.popleft()
        if self.is_open:
            action()
