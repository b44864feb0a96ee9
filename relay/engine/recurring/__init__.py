"""Recurrences: the calls about them, and the loops that tick."""
