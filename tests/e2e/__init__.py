"""End to end: real servers, real relays, real applications, each a process of its own."""
