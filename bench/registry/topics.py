"""Figures of scalable topics: changed, listed, read, and kept in memory."""

from __future__ import annotations

from functools import partial

from bench.balance import hot_broker
from bench.figure import Figure
from bench.topics import layouts, lists, memory, messages, operations

OF_TOPICS = (
    Figure(
        "split-rest",
        "split of an idle topic through REST, p50",
        "60 ms, 1.5 x making its Kafka topics and one change of settings",
        "26 ms warm, 36 ms cold",
        operations.split,
    ),
    Figure(
        "merge-rest",
        "merge of an idle topic through REST, p50",
        "60 ms, 1.5 x making its Kafka topic and one change of settings",
        "15 ms warm, 21 ms cold",
        operations.merge,
    ),
    Figure(
        "split-held",
        "a split, SEALING to COMMIT: how long the parent takes nothing, p50",
        "at most 1.5 x the same calls of Kafka by bare clients",
        "-",
        operations.split_held,
    ),
    Figure(
        "merge-held",
        "the same of a merge",
        "at most 1.5 x the same calls of Kafka by bare clients",
        "-",
        operations.merge_held,
    ),
    Figure(
        "split-ack",
        "worst send-to-ack of changed keys at 200 msg/s, p50 of 20 splits and merges",
        "100 ms, on one broker 25 ms",
        "113 to 124 ms at 2,000 msg/s (10 to 24 ms without a split)",
        messages.ack,
    ),
    Figure(
        "split-ack-worst",
        "the worst of these",
        "250 ms, on one broker 25 ms",
        "-",
        messages.ack_worst,
    ),
    Figure(
        "prepare-ack",
        "worst send-to-ack at 200 msg/s, p50 of 20 prepares: 4 to 8 or 3 segments, and back",
        "1.5 x that of the splits between them",
        "-",
        messages.prepare,
    ),
    Figure(
        "split-stream",
        "worst send-to-receive of changed keys at 200 msg/s, stream, p50 of 20 splits and merges",
        "150 ms, on one broker 60 ms",
        "2,035 ms at 2,000 msg/s (18 ms without a split)",
        messages.stream,
    ),
    Figure(
        "split-queue",
        "worst send-to-receive of changed keys at 200 msg/s, queue, p50 of 20 splits and merges",
        "200 ms, on one broker 60 ms",
        "128 ms at 2,000 msg/s (20 ms without a split)",
        messages.queue,
    ),
    Figure(
        "split-ack-2000",
        "split-ack at 2,000 msg/s",
        "100 ms, on one broker 25 ms",
        "-",
        partial(messages.ack, rate=messages.FAST),
    ),
    Figure(
        "split-stream-2000",
        "split-stream at 2,000 msg/s",
        "150 ms, on one broker 60 ms",
        "-",
        partial(messages.stream, rate=messages.FAST),
    ),
    Figure(
        "split-queue-2000",
        "split-queue at 2,000 msg/s",
        "200 ms, on one broker 60 ms",
        "-",
        partial(messages.queue, rate=messages.FAST),
    ),
    Figure(
        "hot-broker",
        "worst send-to-receive of bundles that a hot broker sheds, 1,000 msg/s",
        "at most that of as many transfers by hand",
        "-",
        hot_broker.relieved,
        on_one=True,
    ),
    Figure(
        "layout-reads",
        "layout reads per second by REST, 32 connections",
        "more than the peer",
        "13,800/s",
        layouts.reads,
    ),
    Figure(
        "layout-tail",
        "their p99",
        "less than the peer's",
        "6.5 ms",
        layouts.tail,
    ),
    Figure(
        "topics-memory",
        "memory of a node with 10,000 topics and 1,000 watches",
        "at most 400 MB",
        "625 MB after 350 topics",
        memory.node,
        on_one=True,
    ),
    Figure(
        "topic-list",
        "a list of 100,000 topics, node to client, processor time of both, p50",
        "at most 1.5 x serializing it once, and after 300 ms",
        "-",
        lists.long_list,
        on_one=True,
    ),
    Figure(
        "topic-lists",
        "lists of 1,000 topics a second, 32 connections",
        "at least 2,000/s",
        "-",
        lists.short_lists,
        on_one=True,
    ),
    Figure(
        "topic-list-news",
        "a topic was created, until 1,000 watches of its namespace know it, p50",
        "at most 50 ms",
        "-",
        lists.news,
        on_one=True,
    ),
    Figure(
        "topic-list-memory",
        "memory of 1,000 watches of a namespace of 100,000 topics",
        "at most 40 MB",
        "-",
        lists.memory,
        on_one=True,
    ),
)
