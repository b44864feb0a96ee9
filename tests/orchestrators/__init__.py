"""The examples of Airflow, Dagster and Jupyter, each by its own program: `make test-orchestrators`."""
