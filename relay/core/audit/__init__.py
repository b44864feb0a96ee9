"""The audit: replays a topic's journal, and proves or refutes what Relay promises.

See docs/how-to/audit.md.
"""

from relay.core.audit.replay import Audit
from relay.core.audit.report import Example, JournalGap, Judgement, Open, Promise, PromiseVerdict, Report

__all__ = ["Audit", "Example", "JournalGap", "Judgement", "Open", "Promise", "PromiseVerdict", "Report"]
