"""Each fault of the table of faults really happens, and is over when it is healed."""
