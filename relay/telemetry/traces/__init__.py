"""Traces: spans, their ids and context, and how they leave."""
