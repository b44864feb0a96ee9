"""What becomes of the rows: a JSON file, tables, plots, and the targets that were reached or missed."""
