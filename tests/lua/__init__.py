"""Each script: seed raw keys, run it, assert the whole state of the topic's keys."""
