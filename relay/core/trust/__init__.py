"""Callers by name, and what a policy lets them do."""
