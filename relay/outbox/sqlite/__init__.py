"""The outbox in SQLite 3.35 or newer, by the standard library's sqlite3."""

DIALECT = "sqlite"
"""What a URL calls it."""
