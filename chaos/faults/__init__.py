"""What the nemesis does to a world, one module for each kind of thing that breaks."""
