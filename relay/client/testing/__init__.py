"""A relay in memory, for the tests of applications: no Redis, no daemon, no network, no waiting.

>>> from relay.client.testing import InMemoryRelay
>>> async def test_a_reminder_is_sent() -> None:
...     async with InMemoryRelay(app.client) as relay:
...         await app.place_order(42)
...         (delivered,) = await relay.advance(hours=1)
...         assert delivered.outcome is Outcome.ACK

It stores with the store that the daemon's own tests use, checks what the daemon checks, and calls
handlers with the code that a stream's deliveries run through; the repository's tests hold it to a
real relay. See docs/reference/client.md.
"""

from relay.client.testing.records import Delivered, Died, Outcome
from relay.client.testing.relays import InMemoryRelay, RetryPolicy, SyncInMemoryRelay

__all__ = ["Delivered", "Died", "InMemoryRelay", "Outcome", "RetryPolicy", "SyncInMemoryRelay"]
