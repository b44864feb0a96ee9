"""What is counted at once and logged: dead letters, refused hints, trimmed journals."""
