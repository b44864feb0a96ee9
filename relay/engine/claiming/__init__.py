"""The loops that take due timers off the timeline."""
