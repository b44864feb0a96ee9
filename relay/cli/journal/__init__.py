"""The commands about journals: `journal tail`, `journal export`, `audit`."""
