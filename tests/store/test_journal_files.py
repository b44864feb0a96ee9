"""Journals in files come back as they were, and what is none is told from one that was cut short."""

from __future__ import annotations

from pathlib import Path

import pytest

from relay.core.errors import InvalidField, StoreRefused
from relay.store.journal.files import CutShort, Raw, batches, delimited, entries
from tests.audit.files import encoded, written
from tests.audit.forge import Forge


def history() -> Forge:
    forge = Forge().scheduled("t", 1.0).wait(1).claimed("t", 1, 1.0).received("t", 1)
    return forge.stale("t", 9).dead("t", 1, 1, 1, due=forge.now)


def test_what_was_written_is_read(tmp_path: Path) -> None:
    """Batch for batch, with the entries' ids."""
    forge = history()
    file = written(tmp_path / "file", "orders", forge.batches)
    assert list(batches(file, "orders")) == forge.batches


def test_long_entries(tmp_path: Path) -> None:
    """A length of several bytes."""
    forge = Forge()
    for n in range(5):
        forge.scheduled(f"{n}" * 40_000)
    file = written(tmp_path / "file", "orders", forge.batches)
    assert list(batches(file, "orders")) == forge.batches


def test_where_entries_end(tmp_path: Path) -> None:
    """So that a writer can go on behind the last whole one, wherever it was cut short."""
    forge = history()
    file = written(tmp_path / "file", "orders", forge.batches)
    whole = file.read_bytes()
    with file.open("rb") as opened:
        ends = [raw.end for raw in entries(opened, "file")]
    assert ends[-1] == len(whole)
    for size in range(len(whole)):
        file.write_bytes(whole[:size])
        found = []
        with file.open("rb") as opened:
            if size in (0, *ends):
                found = [raw.end for raw in entries(opened, "file")]
            else:
                with pytest.raises(CutShort):
                    found += [raw.end for raw in entries(opened, "file")]
        assert found == ([end for end in ends if end <= size] if size in (0, *ends) else [])


@pytest.mark.parametrize(
    "content", [b"\x05hello", b"\xff\xff\xff\xff\xff", b"{}\n"], ids=["no message", "too long", "JSON"]
)
def test_what_is_no_journal(content: bytes, tmp_path: Path) -> None:
    """It is refused by the field's name."""
    file = tmp_path / "file"
    file.write_bytes(content)
    with pytest.raises(InvalidField) as refused:
        list(batches(file, "orders"))
    assert refused.value.field == "file"


def test_another_topic(tmp_path: Path) -> None:
    """Two topics' journals are not mixed up."""
    file = written(tmp_path / "file", "orders", history().batches)
    with pytest.raises(InvalidField, match=r"of the topic 'orders', not of 'mails'"):
        list(batches(file, "mails"))


def test_another_version(tmp_path: Path) -> None:
    """A batch that this Relay does not know is not guessed at."""
    raw = b"\x08\x02" + encoded(history().batches[0])[2:]
    file = tmp_path / "file"
    file.write_bytes(delimited(Raw("1-0", raw, "orders")))
    with pytest.raises(InvalidField, match="version 2"):
        list(batches(file, "orders"))


def test_what_is_no_batch() -> None:
    """Somebody else's entry in the stream is not kept."""
    with pytest.raises(StoreRefused, match="entry 1-0"):
        delimited(Raw("1-0", b"\xff\xff"))
