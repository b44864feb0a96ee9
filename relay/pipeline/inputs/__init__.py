"""Other people's tables: how they are read, checked and shown before they become timers."""
