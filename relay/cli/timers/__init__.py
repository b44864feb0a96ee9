"""The commands about timers."""
