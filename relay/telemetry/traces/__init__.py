"""Traces: spans, their ids and context, and their export."""
