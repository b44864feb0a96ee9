"""The cold store, and the sweep that brings its timers to Redis."""
