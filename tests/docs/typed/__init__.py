"""What is on the path of the programs that the pages type."""
