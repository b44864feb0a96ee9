"""Calls that were given up, whose bytes reach Redis later: none of them may act."""
