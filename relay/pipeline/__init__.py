"""Timers in bulk, by Spark: load, store, sweep, audit. An optional extra, `relay-timers[pipeline]`.

The daemon never imports this. Keys, scores and envelopes come from `relay.store`, the rules from
`relay.core`: nothing about them is said twice.
"""
