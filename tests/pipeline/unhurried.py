"""For how long jobs of tests wait for a Redis that stands still.

By default one counts as away that does not answer a job's first questions within five seconds, and it refuses
what it meets ten seconds after that was sent. On a busy machine anything may stand still for seconds, one
behind the other.
"""

from __future__ import annotations

UNHURRIED = {"RELAY_REDIS__COMMAND_TIMEOUT": "60"}
"""Variables of a process that runs jobs."""

WRITE_TTL = 20.0
"""Seconds, in the place of `relay.store.server.line.WRITE_TTL`."""
