"""The outbox and the inbox, on a real Postgres and a real relay."""
