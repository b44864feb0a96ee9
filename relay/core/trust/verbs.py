"""What a policy can let a principal do."""

from __future__ import annotations

from enum import StrEnum


class AccessVerb(StrEnum):
    """What is done to a topic. See docs/how-to/policy.md."""

    SCHEDULE = "schedule"
    """Schedule, move and cancel timers; put and delete recurrences."""
    READ = "read"
    """Get and list timers, recurrences and dead letters, without what is in them; stats and history."""
    PAYLOAD = "payload"
    """See payloads and headers, beside `read`."""
    DELIVER = "deliver"
    """Take deliveries and settle them."""
    OPERATE = "operate"
    """Pause, redrive, purge, run, reshard; pause, resume, trigger and backfill recurrences; change
    calendars."""
    ADMIN = "admin"
    """Change the policy and the keys."""
