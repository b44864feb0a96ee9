"""Recurrences and calendars over HTTP."""
