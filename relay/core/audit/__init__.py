"""The audit: replays a topic's journal, and proves or refutes what Relay promises. See docs/audit.md."""

from relay.core.audit.replay import Audit
from relay.core.audit.report import Example, Gap, Judgement, Open, Promise, Report, Verdict

__all__ = ["Audit", "Example", "Gap", "Judgement", "Open", "Promise", "Report", "Verdict"]
