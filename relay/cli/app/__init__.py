"""`relay app`: an application's processes, and what its module registers."""
