"""What is sealed opens for the timer that it was sealed for, and for nothing else."""

from __future__ import annotations

import base64
import os
import string
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.core.errors import ContentSealed, InvalidField
from relay.core.timers import Content
from relay.core.trust.sealing import DoesNotOpen, Unopened
from relay.core.validate import headers as check_headers
from relay.store.codec import envelope, sealed
from relay.store.codec.contents import PLAIN, Contents
from relay.trust.ciphers import OVERHEAD, PER_SALT, Cipher
from relay.trust.files import BadFile, Watch
from relay.trust.keyring import FileKeyring
from relay.trust.keyring_file import read_keyring
from tests.docs import pages

KEYS = {"old": bytes(range(32)), "new": bytes(range(1, 33))}
topics = st.text(string.ascii_letters + "äß. ", min_size=1, max_size=20)
timer_ids = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=40)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
contents = st.builds(
    Content,
    st.one_of(st.binary(max_size=300), st.integers(0, 70_000).map(bytes)),
    st.dictionaries(texts.filter(lambda name: name not in ("", "content-type")), texts, max_size=3),
    texts,
)


def written(directory: Path, writes: str, keys: Mapping[str, bytes] = KEYS) -> Path:
    """A keyring's file."""
    lines = [f"  {name}: {{base64: {base64.b64encode(key).decode()}}}" for name, key in keys.items()]
    file = directory / "keyring.yaml"
    file.write_text("\n".join([f"write: {writes}", "keys:", *lines]), encoding="utf-8")
    return file


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Contents:
    """Contents of which all topics are sealed."""
    return Contents(FileKeyring(written(tmp_path_factory.mktemp("keys"), "new")), lambda _: True)


@given(topic=topics, timer_id=timer_ids, content=contents, other=timer_ids, place=st.integers(0, 1 << 20))
def test_opens_for_its_timer_alone(
    made: Contents, topic: str, timer_id: str, content: Content, other: str, place: int
) -> None:
    """In any partition of its topic; not under another id, in another topic, or with a byte changed."""
    stored = made.encode(topic, timer_id, content)
    assert made.decode(f"{topic}#3 1 8", timer_id, stored) == content
    assert made.decode_all(topic, [timer_id], [stored]) == (
        envelope.decode_all([envelope.encode(*content)]),
        {},
    )
    moved = [(f"{topic}s", timer_id, stored)]
    if other != timer_id and not timer_id.startswith(other) and not other.startswith(timer_id):
        moved.append((topic, other, stored))
    head = len(sealed.head("new"))
    place = head + place % (len(stored) - head)
    moved.append((topic, timer_id, stored[:place] + bytes([stored[place] ^ 1]) + stored[place + 1 :]))
    for where, name, bytes_ in moved:
        with pytest.raises(DoesNotOpen) as failure:
            made.opened(where, name, bytes_)
        assert failure.value.why == Unopened("new", tampered=True)


def test_an_occurrence_is_bound_to_its_recurrence(made: Contents) -> None:
    """So the content of a recurrence opens for its occurrences, and for no other recurrence's."""
    stored = made.encode("orders", "daily", Content(b"x"))
    assert made.decode("orders", "daily@2026-11-24T08:00:00Z~2", stored).payload == b"x"
    with pytest.raises(DoesNotOpen):
        made.opened("orders", "weekly@2026-11-24T08:00:00Z", stored)


def test_the_key_id_is_part_of_what_is_sealed(tmp_path: Path) -> None:
    """The same key under another id does not open it."""
    keyring = FileKeyring(written(tmp_path, "a", {"a": KEYS["old"], "b": KEYS["old"]}))
    made = Contents(keyring, lambda _: True)
    stored = made.encode("orders", "a-1", Content(b"x"))
    renamed = sealed.head("b") + sealed.body_of(stored, "a")
    with pytest.raises(DoesNotOpen, match="sealed with key 'b', and not for this timer"):
        made.opened("orders", "a-1", renamed)


def test_the_form_tells_that_it_is_sealed_and_with_which_key(made: Contents) -> None:
    """To whoever reads envelopes; and it is larger by what the docs say."""
    plain, content = envelope.encode(b"payload", {}, ""), Content(b"payload")
    stored = made.encode("orders", "a-1", content)
    assert envelope.decode(stored).headers == {"relay-sealed": "new"}
    assert b"payload" not in stored
    assert len(stored) == len(plain) + OVERHEAD + len(sealed.head("new"))
    assert stored != made.encode("orders", "a-1", content), "each has a nonce of its own"


def test_without_the_key_it_says_which_one_is_missing(made: Contents) -> None:
    """No keyring, and one that lacks the key: both name it; a batch says which of its timers don't open."""
    stored = made.encode("orders", "a-1", Content(b"x"))
    with pytest.raises(ContentSealed, match="'a-1' is sealed with key 'new', which the keyring lacks"):
        PLAIN.decode("orders", "a-1", stored)
    plain = envelope.encode(b"y", {"k": "v"}, "t")
    found, closed = PLAIN.decode_all("orders", ["b", "a-1"], [plain, stored])
    assert found == ([b"y", b""], [{"k": "v"}, {}], ["t", ""])
    assert closed == {1: Unopened("new")}


@pytest.mark.parametrize("cut", [0, 20, 33, 34, 36, 37, 40, 60, 81])
def test_what_is_cut_off_raises_nothing_else(made: Contents, cut: int) -> None:
    """Bytes that look sealed are a payload, or don't open."""
    stored = made.encode("orders", "a-1", Content(b"x"))[:cut]
    (payloads, _, _), closed = made.decode_all("orders", ["a-1"], [stored])
    assert payloads == ([b""] if closed else [envelope.decode(stored).payload])


def test_callers_can_not_say_that_they_sealed() -> None:
    """The header is Relay's own: a plain timer with it would never be delivered."""
    for name in ("relay-sealed", "relay-seal-with"):
        with pytest.raises(InvalidField, match=f"{name}, which is Relay's own"):
            check_headers({name: "new"})


def test_a_forked_process_and_a_used_up_key_get_another_salt(monkeypatch: pytest.MonkeyPatch) -> None:
    """A derived key seals a bounded number of texts, of one process."""
    cipher = Cipher(KEYS["new"])
    first, second = cipher.seal([b"a", b"a"], [b"x", b"x"])
    assert first[1:17] == second[1:17]
    assert first[17:29] != second[17:29]
    monkeypatch.setattr(os, "getpid", lambda: -1)
    assert cipher.seal([b"a"], [b"x"])[0][1:17] != first[1:17]
    before = cipher.seal([b"a"], [b"x"])[0][1:17]
    cipher._left = 0
    assert cipher.seal([b"a"], [b"x"])[0][1:17] != before
    assert PER_SALT**2 / 2**97 < 2**-48, "the chance of two equal nonces under one derived key"
    assert Cipher(KEYS["new"]).open(b"a", first) == b"x"


# ------------------------------------------------------------------ the file


def test_keys_come_from_files_or_text(tmp_path: Path) -> None:
    """Raw bytes or base64, beside the keyring or elsewhere."""
    (tmp_path / "raw.key").write_bytes(KEYS["old"])
    (tmp_path / "text.key").write_bytes(base64.b64encode(KEYS["new"]) + b"\n")
    text = f"write: b\nkeys:\n  a: {{file: raw.key}}\n  b: {{file: {tmp_path}/text.key}}\n"
    (tmp_path / "keyring.yaml").write_text(text, encoding="utf-8")
    assert read_keyring(tmp_path / "keyring.yaml") == ("b", {"a": KEYS["old"], "b": KEYS["new"]})


SHORT = base64.b64encode(b"short").decode()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("write: [", "is not YAML at line"),
        ("keys: {}", "must have the fields write and keys, and no others"),
        ("write: a\nkeys: {}", "keys: must map ids to keys, from 1 to 100"),
        ("write: a\nkeys: {1: {base64: x}}", "an id must be 1 to 64 letters"),
        (f"write: a\nkeys: {{a: {{base64: {SHORT}}}}}", "keys.a.base64: must be 32 bytes in base64"),
        ("write: a\nkeys: {a: {file: gone.key}}", "keys.a.file: .*gone.key can't be read: No such file"),
        ("write: a\nkeys: {a: {kms: x}}", "keys.a: must be either"),
        ("write: a\nkeys: {a: secret}", "keys.a: must be either"),
        ("write: 2026-13-01\nkeys: {}", "has a value that YAML can't read"),
        ('write: !!timestamp "x"\nkeys: {}', "has a value that YAML can't read"),
        ("[" * 100_000, "has a value that YAML can't read"),
        (f"write: [a]\nkeys: {{a: {{base64: {'A' * 43}=}}}}", "write: must be the id of a key"),
        ('write: a\nkeys: {a: {file: "x\\0y"}}', "keys.a.file: can't be read"),
        ('write: a\nkeys: {a: {base64: "\\ud800"}}', "keys.a.base64: must be 32 bytes in base64"),
    ],
)
def test_a_wrong_file_is_named_with_its_field(tmp_path: Path, text: str, problem: str) -> None:
    """And what it should be; keys are not quoted."""
    file = tmp_path / "keyring.yaml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(BadFile, match=problem) as failure:
        read_keyring(file)
    assert str(failure.value).startswith(f"sealing.keyring: {file} ")
    assert SHORT not in str(failure.value)
    assert "secret" not in str(failure.value)


def test_write_must_name_a_key(tmp_path: Path) -> None:
    """A misspelt id is found as the file is read."""
    with pytest.raises(BadFile, match="write: must be the id of a key that keys has"):
        read_keyring(written(tmp_path, "neu"))


def test_a_changed_file_is_taken_over_and_a_bad_one_is_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The bad one is told once, until it is another one or good again. Nothing shows a key."""
    caplog.set_level("INFO")
    keyring = FileKeyring(written(tmp_path, "old"))
    told: list[bool] = []
    watch = Watch(lambda setting, taken: told.append(taken))
    watch.add(keyring.source)
    stored = keyring.seal([b"a"], [b"x"])
    assert stored[0] == "old"
    written(tmp_path, "new")
    watch.look()
    assert keyring.writes == "new"
    assert keyring.open("old", b"a", stored[1][0]) == b"x"
    written(tmp_path, "missing")
    watch.look()
    watch.look()
    assert (told, keyring.writes) == ([True, False], "new")
    written(tmp_path, "new", {"new": KEYS["new"]})
    watch.look()
    with pytest.raises(DoesNotOpen, match="the keyring lacks"):
        keyring.open("old", b"a", stored[1][0])
    shown = [repr(keyring), repr(Cipher(KEYS["old"])), *(str(each.__dict__) for each in caplog.records)]
    for key in KEYS.values():
        for form in (key.hex(), base64.b64encode(key).decode(), repr(key)[2:-1]):
            assert not any(form in each for each in shown)


def test_the_files_of_keys_are_watched_as_the_keyring_names_them(tmp_path: Path) -> None:
    """One that is missing is found when it comes; one that is replaced is taken over; one that is named no
    more is not looked at."""
    file, one, two = (tmp_path / name for name in ("keyring.yaml", "one.key", "two.key"))
    one.write_bytes(KEYS["old"])
    file.write_text("write: a\nkeys: {a: {file: one.key}}", encoding="utf-8")
    keyring = FileKeyring(file)
    told: list[bool] = []
    watch = Watch(lambda setting, taken: told.append(taken))
    watch.add(keyring.source)
    file.write_text("write: b\nkeys: {a: {file: one.key}, b: {file: two.key}}", encoding="utf-8")
    watch.look()
    watch.look()
    assert (told, keyring.writes) == ([False], "a")
    two.write_bytes(KEYS["new"])
    watch.look()
    watch.look()
    assert (told, keyring.writes) == ([False, True], "b")
    stored = keyring.seal([b"x"], [b"y"])[1][0]
    two.write_bytes(bytes(32))
    watch.look()
    with pytest.raises(DoesNotOpen, match="or changed since"):
        keyring.open("b", b"x", stored)
    file.write_text("write: a\nkeys: {a: {file: one.key}}", encoding="utf-8")
    watch.look()
    count = len(told)
    two.unlink()
    watch.look()
    assert len(told) == count


@pytest.mark.checkout
def test_the_keyring_of_the_docs_is_read(tmp_path: Path) -> None:
    """As it stands on the page."""
    (block,) = pages.run_by(__file__)
    (tmp_path / "k1.key").write_bytes(base64.b64encode(KEYS["old"]) + b"\n")
    (tmp_path / "keyring.yaml").write_text(block.text, encoding="utf-8")
    assert read_keyring(tmp_path / "keyring.yaml") == ("k1", {"k1": KEYS["old"]})
