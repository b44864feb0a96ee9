"""What an OK can mean at a server, and what a load still owes to its callers."""
