"""The demo on a cluster of its own: the story, with a node that is killed, and Spark's audit."""

from __future__ import annotations

import asyncio
import logging
import time
from pathlib import Path
from typing import Final

from anabranch.broker.settings import load_settings
from anabranch.cli.cluster.log import lines, sentence
from anabranch.cli.topics.sdk import configure_sdk_log
from anabranch.core.entities.topic import TopicMove
from anabranch.core.entities.unit import Move
from anabranch.core.log.records import Record, SessionChange, SessionOp, TopicChange, UnitMove
from anabranch.core.log.verdicts import Verdict
from anabranch.devkit import ports
from anabranch.devkit.demo.adoption import KAFKA_TOPIC, AdoptionStory
from anabranch.devkit.demo.narrator import Narrator
from anabranch.devkit.demo.story import HOME, SETTINGS, BrokenPromiseError, Story
from anabranch.devkit.demo.traffic import Reach
from anabranch.devkit.kafka.embedded import EmbeddedKafka
from anabranch.devkit.nodes import HOST, NodeProcess, await_ready, stop_all
from anabranch.spark_replay.audit.run import AuditOptions, run_audit

_NODES: Final = 3
_PREFIX: Final = "anabranch."


class OwnClusterDemo:
    """One run in a folder of its own. `adopts`: it tells of a Kafka topic that is adopted."""

    def __init__(self, folder: Path, narrator: Narrator, *, adopts: bool = False) -> None:
        self._folder = folder
        self._narrator = narrator
        self._adopts = adopts
        self._kafka = EmbeddedKafka(folder / "kafka")
        self._nodes: list[NodeProcess] = []

    def run(self) -> int:
        """The exit status: 0 if the judge and the audit found each promise kept."""
        try:
            reach = self._start()
            with (self._folder / "clients.log").open("w", encoding="utf-8") as log:
                configure_sdk_log(log, logging.INFO)
                arrived = asyncio.run(self._tell(reach))
            self._show_records()
            audited = self._audit()
        except BrokenPromiseError as error:
            return self._end(1, f"a promise is BROKEN: {error}. Logs: {self._folder}")
        finally:
            stop_all(self._nodes)
            self._kafka.stop()
        if not arrived or audited == 1:
            where = "messages" if not arrived else "the log"
            return self._end(1, f"a promise is BROKEN, see {where} above. Report: {self._report}")
        if audited:
            return self._end(audited, "the audit could not prove the log")
        return self._end(0, f"every promise was kept. Report: {self._report}")

    @property
    def _report(self) -> Path:
        return self._folder / "audit.html"

    def _end(self, status: int, result: str) -> int:
        self._narrator.end(result)
        return status

    def _start(self) -> Reach:
        narrator = self._narrator
        narrator.step("start", "A small cluster: one Kafka and three nodes")
        narrator.say(f"all data and logs are in {self._folder}")
        self._kafka.start()
        narrator.say(f"Kafka serves at {self._kafka.bootstrap_servers}")
        self._nodes += [
            NodeProcess(
                f"node-{number}",
                ports.free_port(HOST),
                self._kafka.bootstrap_servers,
                self._folder,
                f"topicPrefix={_PREFIX}",
                "snapshotIntervalSeconds=10",  # so that there is one to hold against the log
                f"adoptableTopics={HOME}={KAFKA_TOPIC}",
                *SETTINGS,
                service_port=ports.free_port(HOST),
            )
            for number in range(_NODES)
        ]
        for node in self._nodes:
            node.start()
        await_ready(self._nodes)
        for node in self._nodes:
            narrator.say(f"{node.name} serves at {node.url}")
        return Reach(
            ",".join(node.url for node in self._nodes),
            ",".join(node.service_url() for node in self._nodes).replace(",pulsar://", ","),
        )

    async def _tell(self, reach: Reach) -> bool:
        """Tells whether the judge finds nothing wrong. Raises BrokenPromiseError."""
        if self._adopts:
            servers = self._kafka.bootstrap_servers
            async with AdoptionStory(reach, servers, self._narrator) as adoption:
                return await adoption.tell()
        async with Story("merges", reach, self._narrator) as story:
            await story.begin()
            await story.split(2)  # of 3, so that a split may be under way when its node dies
            await self._kill_the_controller(story)
            await story.merge()
            return await story.judge()

    async def _kill_the_controller(self, story: Story) -> None:
        self._narrator.step("take-over", "A node is killed, and another takes over")
        named = {node.url: node for node in self._nodes}
        dead = named[await story.controller()]
        sent = len(story.traffic.sent)
        dead.kill()
        killed_s = time.monotonic()
        self._narrator.say(f"SIGKILL of {dead.name}, which controls the topic; the load goes on")
        successor = named[await story.successor(dead.url)]
        self._narrator.say(
            f"{successor.name} controls the topic after {time.monotonic() - killed_s:.1f} s; "
            f"producers sent {len(story.traffic.sent) - sent:,} messages meanwhile"
        )

    def _show_records(self) -> None:
        """Stops the nodes, and prints the records of all that was shown."""
        self._narrator.step("audit", "Every decision is a record, and Spark proves the log sound")
        # In turn: what is handed to a node that stops as well would be an orphan for the audit.
        for node in self._nodes:
            stop_all([node])
        named = {"bootstrapServers": self._kafka.bootstrap_servers, "topicPrefix": _PREFIX}
        records = list(lines(load_settings(None, {}, named), None, follow=False))
        told = [
            f"{each.offset:>4}  {sentence(each.record)}"
            for each in records
            if each.verdict is Verdict.ACCEPTED and each.record and _is_of_the_story(each.record)
        ]
        self._narrator.say(
            f"all nodes have stopped; {len(told)} of the {len(records)} records on their log tell "
            "the story:"
        )
        self._narrator.show(told)

    def _audit(self) -> int:
        self._narrator.say("Spark reads the log, replays it, and checks each promise\n")
        return run_audit(
            AuditOptions(
                bootstrap_servers=self._kafka.bootstrap_servers,
                topic_prefix=_PREFIX,
                html_path=self._report,
                json_path=str(self._folder / "audit.json"),
                scratch_dir=self._folder,
            )
        )


def _is_of_the_story(record: Record) -> bool:
    match record:
        case TopicChange():
            return record.move in (TopicMove.BEGIN, TopicMove.COMMIT)
        case SessionChange():
            return record.op is SessionOp.EXPIRE
        case UnitMove():
            return record.move is Move.OWN
    return False
