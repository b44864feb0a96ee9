"""`make demo-secure`: who calls, what they may do, what Redis shows, and new keys while timers flow."""
