"""Timers in bulk, by Spark: load, store, sweep, audit. This is an optional extra, `relay-timers[pipeline]`.

The daemon never imports it. Keys, scores and envelopes come from `relay.store`, the rules from
`relay.core`: nothing about them is repeated here.
"""
