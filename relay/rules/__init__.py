"""Rules of recurrences: from their text to nominal instants. Pure computation.

See docs/reference/recurrence-rules.md.
"""

from relay.rules.compiling import compile_rule
from relay.rules.nominal import Instants, Nominal
from relay.rules.pace import check_pace
from relay.rules.zones import TZDATA

__all__ = ["TZDATA", "Instants", "Nominal", "check_pace", "compile_rule"]
