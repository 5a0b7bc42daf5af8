"""Scalable topics in a simulated cluster: their data, their users, and the users' troubles."""

from __future__ import annotations

import msgspec

from anabranch.broker.binary.forms import ClientSettings, Dags
from anabranch.broker.topics.watches import WatchedTopic
from anabranch.client import TopicLayout
from anabranch.core.bundles.guards import controller_of
from anabranch.core.log.outcome import Folded
from anabranch.core.log.verdicts import Verdict
from simulation.audits import Auditor
from simulation.checkpoint_consumers import CheckpointReader
from simulation.checkpoint_sink import Sink
from simulation.cluster import Cluster
from simulation.consumers import Consumer, LateReader
from simulation.forgetting import Forgetting
from simulation.old_topics import OldTopics
from simulation.operators import HOME, LATE, Operators
from simulation.process import Process
from simulation.producers import Producer
from simulation.running_consumers import RunningConsumer
from simulation.scale_checks import ScaleChecks
from simulation.segment_store import Place, SegmentStore
from simulation.shared_keys import SharedKeys
from simulation.topic_checks import TopicChecks
from simulation.topic_host import TopicHost
from simulation.topic_load import Loads
from simulation.topic_plan import SETTINGS, TopicPlan
from simulation.unserved_checks import LOOK_S, UnservedChecks


class TopicWorld:
    """Everything about topics in one run."""

    def __init__(self, cluster: Cluster, plan: TopicPlan) -> None:
        self.cluster = cluster
        self.sched = cluster.sched
        self.plan = plan
        self.settings = msgspec.structs.replace(SETTINGS, auto_scale=plan.auto_scale)
        self.store = SegmentStore(self)
        self.checks = TopicChecks(self)
        self.shared = SharedKeys(self)
        self.scale_checks = ScaleChecks(self)
        self.unserved_checks = UnservedChecks(self)
        self.auditor = Auditor(self)
        self.loads = Loads(self)
        self.operators = Operators(self)
        self.forgetting = Forgetting(self)
        self.hosts: dict[str, TopicHost] = {}
        self.settled_in_doubt = 0
        self.topics = [f"{HOME}/t{each}" for each in range(plan.topics)]
        self.lasting = list(self.topics)
        self.passing = [f"{HOME}/p{each}" for each in range(plan.passing_topics)]
        self.topics += self.passing
        self.old = OldTopics(self)
        names = [f"s{each}" for each in range(plan.subscriptions)]
        self.subscriptions = [(topic, name) for topic in self.lasting for name in names]
        kept = self.subscriptions[-1:] if plan.checkpoints else []
        self.sinks = {each: Sink(self, whole=plan.consumers == 1) for each in kept}
        rates = iter(plan.clock_rates * 4)
        self.consumers = [
            self._consumer(topic, name, f"c{each}", next(rates))
            for topic, name in self.subscriptions
            for each in range(plan.consumers)
        ]
        self.consumers += [
            self._consumer(topic, "s0", f"c{each}", next(rates))
            for topic in self.passing
            for each in range(2)
        ]
        self.twins = [
            self._consumer(topic, name, "c0", next(rates)) for topic, name in self.subscriptions
        ]
        self.regulars = list(self.consumers)
        self.consumers += self.twins
        self.late = [
            LateReader(self, self.lasting[0], LATE, f"c{each}", next(rates))
            for each in range(2 if plan.late else 0)
        ]
        self.consumers += self.late
        self.producers = [
            Producer(self, topic, f"w{each}")
            for topic in self.topics
            for each in range(plan.producers if topic in self.lasting else 1)
        ]
        self._numbers = 0
        self._began = False
        timeout_s = self.settings.timing.session_timeout_s
        self.client_settings = ClientSettings("", "", 1_048_588, round(1000 * timeout_s))
        self._dags = Dags(self.client_settings)
        self._layouts: dict[tuple[str, int], TopicLayout] = {}
        cluster.world = self

    def _consumer(self, topic: str, subscription: str, name: str, rate: float) -> Consumer:
        sink = self.sinks.get((topic, subscription))
        if sink is not None:
            return CheckpointReader(self, topic, subscription, name, rate, sink)
        one_in = round(1.0 / self.plan.running.share) if self.plan.running.share else 0
        if one_in and not int(name[1:]) % one_in:
            return RunningConsumer(self, topic, subscription, name, rate)
        return Consumer(self, topic, subscription, name, rate)

    @property
    def faults_over(self) -> bool:
        return self.cluster.faults_over

    def new_number(self) -> int:
        self._numbers += 1
        return self._numbers

    def host(self, process: Process) -> TopicHost:
        """For a process that starts."""
        self.loads.process_started(process)
        self.hosts[process.name] = TopicHost(self, process)
        return self.hosts[process.name]

    def process_ended(self, process: Process) -> None:
        """Connections to it break."""
        for consumer in self.consumers:
            consumer.lost_node(process)

    def folded(self, folded: Folded) -> None:
        """A record was judged; the truth has it."""
        if folded.outcome.verdict is Verdict.ACCEPTED:
            self.checks.folded(folded)
            self.old.folded(folded)
            self.auditor.folded(folded)
            self.scale_checks.folded(folded)

    def stored(self, place: Place) -> None:
        """There is something to read for whoever reads there."""
        for consumer in self.consumers:
            consumer.wake_for(place)

    def working_s(self) -> float:
        """How long an application works on a message."""
        if not self.faults_over and self.sched.chance(self.plan.slow_work):
            return self.sched.rng.uniform(0.2, self.plan.slow_work_s)
        return self.sched.rng.uniform(0.0, 0.02)

    # --- what clients are told ------------------------------------------------------------

    def _anybody(self) -> Process | None:
        process = self.sched.rng.choice(self.cluster.processes)
        return process if process.alive and not process.paused else None

    def controller_heard_of(self, topic: str) -> Process | None:
        """Whom some broker takes for the topic's controller."""
        process = self._anybody()
        holder = controller_of(process.replica, topic)[1] if process is not None else ""
        found = [each for each in self.cluster.processes if each.name == holder and each.alive]
        return found[0] if found else None

    def layout_heard_of(self, name: str) -> TopicLayout | None:
        """What some broker knows of a topic's layout."""
        process = self._anybody()
        topic = process.replica.topic(name) if process is not None else None
        if topic is None or not topic.is_open:
            return None
        known = self._layouts.get((name, topic.version))
        if known is None:
            dag = self._dags.of(name, topic, WatchedTopic(topic))
            known = self._layouts[name, topic.version] = TopicLayout.from_proto(name, dag)
        return known

    # --- the run ---------------------------------------------------------------------------

    def start(self) -> None:
        self.loads.start()
        self.old.start()
        self.sched.after(LOOK_S, self._watch)
        self.sched.after(0.5, self.operators.operate)
        self.forgetting.start(lambda: self.sched.rng.expovariate(1.0))
        for consumer in self.late:
            self.sched.after(self.sched.rng.uniform(5.0, 20.0), consumer.start)
        self.sched.after(1.0, self._begin)
        self.sched.after(self._next_fault_s(), self._strike)
        self.sched.at(self.cluster.plan.faults_end_s, self._clear)

    def _watch(self) -> None:
        self.unserved_checks.look()
        self.auditor.look()
        self.sched.after(LOOK_S, self._watch)

    def _begin(self) -> None:
        """Consumers come first, so that every subscription has everything to read."""
        truth = self.cluster.checks.truth
        if not self._began:
            for consumer in self.regulars:
                consumer.start()
        self._began = True
        if all(truth.subscription(*each) for each in self.subscriptions):
            for producer in self.producers:
                producer.start()
        else:
            self.sched.after(0.5, self._begin)

    # --- what goes wrong for clients --------------------------------------------------------

    def _next_fault_s(self) -> float:
        return self.sched.rng.expovariate(1.0 / self.plan.client_fault_interval_s)

    def _strike(self) -> None:
        if self.faults_over:
            return
        self.sched.after(self._next_fault_s(), self._strike)
        if not self._began or not self.plan.client_faults:
            return
        rng = self.sched.rng
        kind = rng.choice(self.plan.client_faults)
        duration_s = rng.choice((0.5, 3.0, 4.0, 4.5, 5.0, 7.0, 9.0)) + rng.random()
        if kind.startswith("producer"):
            self._strike_producer(kind, duration_s)
            return
        victim = rng.choice(self.twins if kind == "twin" else self.regulars)
        self.sched.note(f"fault {kind} {victim} for {duration_s:.1f} s")
        match kind:
            case "twin":
                victim.start()
                victim.later(2 * duration_s, victim.crash)
            case "crash":
                victim.crash()
                self.sched.after(duration_s, victim.start)
            case "restart":
                victim.crash()
                self.sched.after(rng.random() / 2, victim.start)
            case "pause":
                victim.pause(duration_s)
            case "cut":
                victim.cut_until = self.sched.now + duration_s
            case _:
                victim.close()
                self.sched.after(duration_s, victim.start)

    def _strike_producer(self, kind: str, duration_s: float) -> None:
        victim = self.sched.rng.choice(self.producers)
        if victim.life == 0:
            return
        if kind == "producer_crash":
            victim.crash()
            victim.start()
        else:
            victim.pause(duration_s)

    def _clear(self) -> None:
        for producer in self.producers:
            producer.resume()
        for twin in self.twins:
            twin.crash()
        for consumer in self.regulars:
            consumer.cut_until = 0.0
            consumer.resume()
        self._revive()

    def _revive(self) -> None:
        """Who was about to leave when the faults ended has left, and comes again."""
        for consumer in self.regulars:
            consumer.start()
        self.sched.after(1.0, self._revive)

    def judge(self) -> None:
        """The keys that many write to, as stored and as delivered."""
        self.shared.judge()

    def seen(self) -> dict[str, int]:
        """What the run has put the clients through."""
        return {
            "stored": sum(self.checks.stored.values()),
            "redelivered": self.checks.redelivered,
            "handed_on": self.checks.handed_on,
            "given_up": len(self.checks.in_doubt),
            "settled_in_doubt": self.settled_in_doubt,
            "checkpoints": sum(each.saves for each in self.sinks.values()),
            "seeks": self.checks.seeks.finished,
            "forgotten": self.forgetting.forgotten,
            "kept": self.forgetting.kept,
            "removed": len(self.checks.taken),
            "audited_drains": self.auditor.drains,
            "failed_seeks": self.checks.seeks.failed,
            "answers": self.shared.answers,
            "stopped": self.checks.handlers.stopped,
            "lapses": sum(each.lapses for each in self.consumers),
            **self.scale_checks.counts,
            **self.old.counts,
            **self.checks.running.counts,
        }

    # --- after the faults -------------------------------------------------------------------

    def unsettled(self) -> list[str]:
        """What still keeps the topics from being at rest, in words."""
        truth = self.cluster.checks.truth
        found = []
        for name in self.topics:
            topic = truth.topic(name)
            if topic is None and name in self.lasting:
                found.append(f"{name} was never created")
            elif topic is not None and topic.is_restless:
                found.append(f"{name} is {topic.state.name}, {len(topic.garbage)} to be deleted")
        found += [
            f"producer {each.name} of {each.topic} waits"
            for each in self.producers
            if not each.is_idle and (each.topic in self.lasting or truth.topic(each.topic))
        ]
        found += [f"{each} is not alive" for each in self.regulars if not each.alive]
        return found or self.checks.unread() or self.scale_checks.unfinished()
