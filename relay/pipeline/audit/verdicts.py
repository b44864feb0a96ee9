"""An audit's verdicts: the findings of each topic and promise, added up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from relay.core.audit.report import LIVES, Promise, PromiseVerdict, doubts_of
from relay.pipeline.audit.gaps import Topic

VERDICTS = """
topic string, promise int, title string, verdict string, checked bigint, refuted bigint,
doubts map<string,bigint>
"""


VERDICT_COLUMNS = [part.split()[0] for part in VERDICTS.replace("<string,", "<string;").split(",")]


@dataclass(slots=True)
class Judged:
    """One topic's verdict on one promise."""

    topic: str
    promise: Promise
    verdict: PromiseVerdict
    checked: int
    refuted: int
    doubts: dict[str, int]


def row_of(each: Judged) -> tuple[Any, ...]:
    """Return the verdict as a row of `VERDICTS`."""
    title, verdict = each.promise.title, each.verdict.value
    return each.topic, int(each.promise), title, verdict, each.checked, each.refuted, each.doubts


def judge(facts: DataFrame, topics: Mapping[str, Topic], wanted: Iterable[str], asked: bool) -> list[Judged]:
    """Return a verdict for each promise of each topic that is known or `wanted`. `asked` says that Redis was
    asked for all timers that live. This reads a row for each topic, promise and reason."""
    found: dict[tuple[str, int], Counter[str]] = {}
    reasons = facts.where("fact = 'finding'").groupBy("topic", "promise", "name")
    for row in reasons.agg(f.sum("count").alias("n")).collect():
        found.setdefault((row.topic, row.promise), Counter())[row.name] = row.n
    checked = facts.where("fact = 'hour' and name like 'checked:%'").groupBy("topic", "name")
    known = {(row.topic, row.name): row.n for row in checked.agg(f.sum("count").alias("n")).collect()}
    unasked = facts.where("fact = 'unasked'").groupBy("topic").agg(f.sum("count").alias("n"))
    waiting = {} if asked else {row.topic: row.n for row in unasked.collect()}
    made = []
    for name in sorted({*topics, *wanted}):
        topic = topics.get(name) or Topic(name)
        general = doubts_of(topic.batches, topic.gaps, topic.missing)
        for promise in Promise:
            reasons_of = found.get((name, int(promise)), Counter())
            doubts = {reason: count for reason, count in reasons_of.items() if reason} | general
            if promise is Promise.AT_LEAST_ONCE and name in waiting:
                doubts[LIVES.format(waiting[name])] = waiting[name]
            refuted = reasons_of[""]
            verdict = PromiseVerdict.of(refuted > 0, bool(doubts))
            count = known.get((name, f"checked:{int(promise)}"), 0)
            made.append(Judged(name, promise, verdict, count, refuted, doubts))
    return made


def overall(verdicts: Sequence[Judged]) -> tuple[PromiseVerdict, dict[str, int]]:
    """Return the overall verdict, and how many topics have each verdict as their worst."""
    worst = dict.fromkeys(PromiseVerdict, 0)
    for topic in {each.topic for each in verdicts}:
        own = {each.verdict for each in verdicts if each.topic == topic}
        worst[
            next(
                each
                for each in (PromiseVerdict.REFUTED, PromiseVerdict.UNSAID, PromiseVerdict.PROVED)
                if each in own
            )
        ] += 1
    counts = {
        "proved": worst[PromiseVerdict.PROVED],
        "refuted": worst[PromiseVerdict.REFUTED],
        "unsaid": worst[PromiseVerdict.UNSAID],
    }
    return PromiseVerdict.of(worst[PromiseVerdict.REFUTED] > 0, worst[PromiseVerdict.UNSAID] > 0), counts
