"""One topic on a real server, with its clock in the test's hand and its keys in sight."""
