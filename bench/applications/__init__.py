"""The processes that are measured or measure. Each takes one JSON argument and answers in JSON lines."""
