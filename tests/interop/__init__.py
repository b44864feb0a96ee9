"""Relay and faststream-redis-timers itself, on one topic."""
