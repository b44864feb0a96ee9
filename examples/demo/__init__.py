"""`make demo`: timers firing, an application killed while it holds one, and nothing lost."""
