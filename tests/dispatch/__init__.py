"""Ready lists and streams: the scripts on every server, and the loops around them."""
