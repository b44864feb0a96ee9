"""Rows and timers: types, rules, envelopes and commands, a column at a time."""
