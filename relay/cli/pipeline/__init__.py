"""The commands of the pipeline: a file for each job."""
