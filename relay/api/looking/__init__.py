"""What people look for beyond single calls: searches among timers, what was done by whom, partitions side by
side."""
