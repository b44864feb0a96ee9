"""What is put under a process so that it can break: a disk, a clock."""
