"""What strangers send: damaged bytes for every parser, every method and every path."""
