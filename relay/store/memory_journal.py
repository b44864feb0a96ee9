"""The journal of the store in memory: the same batches that `lua/lib/journal.lua` writes."""

from __future__ import annotations

from relay.core.journal import JournalBatch, JournalRecord, Journals


class MemoryJournal:
    """Gathers what one call changes, and appends it as one batch; `batches` is what each topic keeps."""

    def __init__(self, journals: Journals) -> None:
        self._journals = journals
        self._noted: list[JournalRecord] = []
        self.batches: dict[str, list[JournalBatch]] = {}

    def note(self, record: JournalRecord) -> None:
        """One change."""
        self._noted.append(record)

    def append(self, topic: str, now: int) -> None:
        """All that was noted, if the topic has a journal."""
        noted, self._noted = self._noted, []
        keep = self._journals.keep(topic)
        if not (noted and keep):
            return
        kept = self.batches.setdefault(topic, [])
        before = kept[-1].last if kept else 0
        last = before + len(noted)
        kept.append(JournalBatch(f"{before + 1}-0", now, before + 1, last, tuple(noted)))
        self._trim(topic, kept, last - keep, 2 * len(noted) + 8)

    def _trim(self, topic: str, kept: list[JournalBatch], over: int, most: int) -> None:
        """Drop whole batches up to number `over`, about `most` records at once."""
        trimmed = 0
        while trimmed < most and kept[0].last <= over:
            trimmed += len(kept.pop(0).records)
        if trimmed:
            self._journals.trimmed(topic, trimmed)
