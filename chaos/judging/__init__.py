"""What became of a run, by its ledgers alone; and by its journal, which has to agree."""
