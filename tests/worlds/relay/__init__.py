"""Whole relays: processes on a server of the test's own."""
