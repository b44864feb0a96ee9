"""The names of the keys in Redis according to the settings, for the daemon and the pipeline."""

from __future__ import annotations

from relay.settings.tree import RedisSettings
from relay.store.keys import KeyNames


def key_names(redis: RedisSettings) -> KeyNames:
    """Return the names of all keys according to the settings."""
    return KeyNames(
        timeline=redis.timeline_key,
        payloads=redis.payloads_key,
        leases=redis.leases_key,
        dead=redis.dead_key,
        pause=redis.pause_key,
        journal=redis.journal_key,
        marks=redis.marks_key,
        retiring=redis.retiring_key,
        ledger=redis.ledger_key,
        ready=redis.ready_key,
        processing=redis.processing_key,
        taken=redis.taken_key,
        stream=redis.stream_key,
        retries=redis.retries_key,
        group=redis.group_key,
        topics=redis.topics_key,
        wake=redis.wake_channel,
        hash_tags=redis.hash_tags,
    )
