"""The commands about topics and dead letters."""
