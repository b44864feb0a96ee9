"""Concurrent calls of producers that become few store calls."""
