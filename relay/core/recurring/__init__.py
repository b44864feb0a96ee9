"""Recurrences: what a rule is, and how its occurrences are named."""
