"""Other people's tables: what is read, checked and shown before it becomes timers."""
