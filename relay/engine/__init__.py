"""The loops: poll, dispatch, keep leases, settle, drain.

One timer's way: `Poller.run → store.claim → Dispatcher.deliver → application → Settler.settle`,
with `LeaseKeeper.run → store.extend` beside it.
"""
