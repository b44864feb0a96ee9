"""The worlds that tests stand on.

`scripts`: one topic on a real server whose clock is in the test's hand. `engine`: relays' engines in this
process, on a store in memory whose calls can be held and failed. `relay`: relays and applications as they
ship, as processes that a test may kill. `cluster`: the nodes of a Redis or Valkey Cluster, whose slots move.
"""
