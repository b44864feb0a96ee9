"""Metrics: what there is, how it is counted, and how it leaves."""
