"""The harness of docs/reliability.md: its judge, its ledgers, and a short form of the whole."""
