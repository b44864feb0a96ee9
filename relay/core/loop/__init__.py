"""What belongs to the loop of a process: waits, and the ends of calls."""
