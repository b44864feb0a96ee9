"""An asset of Dagster whose partitions are days of reminders."""
