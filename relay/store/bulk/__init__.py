"""Timers in bulk, for Spark's workers."""
