"""What faults cost: a load, a nemesis, ledgers of the clients' own, and a judge. `python -m chaos --help`."""
