"""The commands of the pipeline, one file for each job."""
