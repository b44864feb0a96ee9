"""`relay outbox …`: timers that applications write in transactions of their own database."""
