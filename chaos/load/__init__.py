"""Who uses Relay while it is hurt: callers, handlers and an operator, each with a ledger of its own."""
