"""The pipeline's bench: `make bench-pipeline`. In its own venv, since Spark is 450 MB."""
