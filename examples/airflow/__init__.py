"""An operator of Airflow, and a DAG that loads each day's reminders by it."""
