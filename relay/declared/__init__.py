"""Recurrences and calendars as a file says them: a list of mappings in the words of the API in JSON."""
