"""What starts the pipeline's jobs and reads their events, by its own programs."""
