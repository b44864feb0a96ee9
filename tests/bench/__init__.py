"""The bench as a guard: no time is asserted, only counts; and every measurement runs in a tiny form."""
