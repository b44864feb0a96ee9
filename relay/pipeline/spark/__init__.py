"""Spark itself: its session, its Java and its files, and the Redis that a job works on."""
