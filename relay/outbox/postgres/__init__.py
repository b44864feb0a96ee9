"""The outbox in PostgreSQL 13 or newer."""

DIALECTS = ("postgresql", "postgres")
"""What a URL calls it."""
