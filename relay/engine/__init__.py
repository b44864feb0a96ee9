"""The loops of a relay: poll, dispatch, keep leases, settle, drain.

A timer's way is `Poller.run → store.claim → Dispatcher.deliver → application → Settler.settle`,
with `LeaseKeeper.run → store.extend` beside it.
"""
