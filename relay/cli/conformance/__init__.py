"""`relay conformance`."""
