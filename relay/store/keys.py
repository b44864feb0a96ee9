"""The names of all Redis keys and channels, in one place."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class KeyNames:
    """The prefixes; a topic's key is `prefix:topic`.

    With `hash_tags` it is `prefix:{topic}`: a Redis Cluster keeps in one slot what shares the part
    in braces. Neither prefixes nor topics contain any.
    """

    timeline: str = "timers_timeline"
    payloads: str = "timers_payloads"
    leases: str = "timers_leases"
    dead: str = "timers_dead"
    pause: str = "timers_pause"
    journal: str = "timers_journal"
    marks: str = "timers_marks"
    retiring: str = "timers_retiring"
    ledger: str = "timers_ledger"
    ready: str = "timers_ready"
    processing: str = "timers_processing"
    taken: str = "timers_taken"
    stream: str = "timers_stream"
    retries: str = "timers_retries"
    group: str = "timers_group"
    topics: str = "timers_topics"
    wake: str = "timers_wake"
    hash_tags: bool = False

    def of(self, topic: str) -> tuple[str, str, str, str, str, str]:
        """Timeline, payloads, leases, dead letters and pause: the order in which every script takes as
        many as it needs; and the journal, which comes last in every script of a topic that has one."""
        tag = self._tag(topic)
        return (
            f"{self.timeline}:{tag}",
            f"{self.payloads}:{tag}",
            f"{self.leases}:{tag}",
            f"{self.dead}:{tag}",
            f"{self.pause}:{tag}",
            f"{self.journal}:{tag}",
        )

    def marks_of(self, topic: str) -> str:
        """What a sweep has to know of. Scripts that may end timers take it behind their other keys, and
        before the journal."""
        return f"{self.marks}:{self._tag(topic)}"

    def retiring_of(self, topic: str) -> str:
        """Who may take timers out of Redis for a write to the cold store. Only the pipeline knows it."""
        return f"{self.retiring}:{self._tag(topic)}"

    def ledger_of(self, topic: str, run: str) -> str:
        """Which timers of the topic a load's run has inserted. A run's id has no colon, so that the runs of
        two topics never share a key. Only the pipeline knows it."""
        return f"{self.ledger}:{run}:{self._tag(topic)}"

    def of_list(self, topic: str) -> tuple[str, ...]:
        """The same with the keys of a topic with a ready list before the journal: the list, the processing
        list, and what is known of the entries in that."""
        tag = self._tag(topic)
        *common, journal = self.of(topic)
        return (*common, f"{self.ready}:{tag}", f"{self.processing}:{tag}", f"{self.taken}:{tag}", journal)

    def of_stream(self, topic: str, group: str) -> tuple[str, ...]:
        """The same with the keys of a topic with a stream before the journal: the stream, and of one group
        the timers that wait for another try, and what is known of its entries. A group's name has no colon,
        so that no two groups of two topics meet in one key."""
        tag = self._tag(topic)
        *common, journal = self.of(topic)
        own = f"{self.retries}:{group}:{tag}", f"{self.group}:{group}:{tag}"
        return (*common, f"{self.stream}:{tag}", *own, journal)

    def channel(self, topic: str) -> str:
        """The pub/sub channel of the topic's wake hints."""
        return f"{self.wake}:{self._tag(topic)}"

    @property
    def pace(self) -> str:
        """The key by which bulk loads take turns."""
        return f"{self.topics}:pace"

    def _tag(self, topic: str) -> str:
        return f"{{{topic}}}" if self.hash_tags else topic
