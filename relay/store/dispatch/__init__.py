"""Topics whose due timers leave the timeline for a list or a stream."""
