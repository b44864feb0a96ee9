"""The audit, on forged journals and on real ones."""
