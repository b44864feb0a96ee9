"""How values look: nothing that others wrote is markup, hides, or turns its neighbours round."""

from __future__ import annotations

import hashlib
import json

import pytest

from relay.console import contents, shown
from relay.console.rendering import HERE, render
from relay.console.requests import PageCall
from relay.console.shapes import shape
from relay.core.errors import InvalidField
from relay.core.instants import LATEST, SECOND
from relay.settings import Settings
from relay.settings.origins import origins


def test_what_does_not_show_is_named() -> None:
    for text, seen in (
        ("\u202eabc", "⟨U+202E⟩abc"),
        ("a\x00b\x1b[31m", "a⟨U+0000⟩b⟨U+001B⟩[31m"),
        ("zero\u200bwidth", "zero⟨U+200B⟩width"),
        ("grün 東京 שלום", "grün 東京 שלום"),
    ):
        assert shown.visible(text) == seen
    assert str(shown.name("<b>\u2066")) == "<bdi class='name'>&lt;b&gt;⟨U+2066⟩</bdi>"


def test_an_instant() -> None:
    """To the second, or as fine as it is; what stands in the place of none is no markup."""
    for instant, text in (
        (0, "1970-01-01T00:00:00Z"),
        (1_500_000, "1970-01-01T00:00:01.5Z"),
        (1_767_225_600_000_010, "2026-01-01T00:00:00.00001Z"),
        (LATEST + SECOND, f"9999-12-31T23:59:59{'.999999' * (LATEST % SECOND > 0)}Z"),
    ):
        assert shown.utc(instant) == text
    seen = "<time datetime='1970-01-01T00:00:01.5Z' data-ms='1500'>1970-01-01T00:00:01.5Z</time>"
    assert str(shown.when(1_500_000)) == seen
    assert str(shown.when(None, otherwise="<b>")) == "<span class='none'>&lt;b&gt;</span>"


def test_an_address() -> None:
    """It has its own parameters, although those of others look like them, and are remembered."""
    for value, said in ((1, "a=1"), (True, "a=True"), ("1", "a=1"), ("\udcff", "a=%ED%B3%BF")):
        assert shown.address("/console", a=value) == f"/console?{said}"
    assert shown.address("/console", a="", b=None) == "/console"


def test_a_line_over_time() -> None:
    """From the lowest value to the highest, as wide as it is; of one value there is no line."""
    assert (shown.line([]), shown.line([7]), shown.numbers([])) == ("", "", "")
    assert shown.line([10, 30, 20]) == "0.0,18.0 48.0,2.0 96.0,10.0"
    assert shown.line([5, 5]) == "0.0,18.0 96.0,18.0"
    assert shown.numbers([10, 30, 20]) == "10,30,20"


def test_a_payload_has_the_form_of_its_bytes() -> None:
    """Whatever its content type says: what is no JSON is text, and what is no text is digits."""
    for payload, kind, form in (
        (b"", "application/json", "empty"),
        (b'{"a": [1, {"b": null}]}', "", "json"),
        (b'"text"', "application/json", "json"),
        (b'{"a": ', "application/json", "text"),
        (b"[" * 5_000 + b"]" * 5_000, "application/json", "text"),
        (json.dumps(list(range(5_000))).encode(), "application/json", "text"),
        ("héllo".encode(), "text/plain", "text"),
        (b"\xff\xfe", "text/plain", "hex"),
        (b"a\x00b", "", "hex"),
    ):
        assert contents.shown(payload, kind).form == form, payload[:40]
    large = contents.shown(b"a" * (1 << 20), "text/plain")
    assert (len(large.text), large.left_out) == (contents.MOST_TEXT, (1 << 20) - contents.MOST_TEXT)
    cut = contents.shown("é".encode() * 40_000 + b"x", "")  # the bound falls into a letter or beside it
    assert cut.form == "text"
    assert len(contents.shown(bytes(1 << 20), "").text.splitlines()) == contents.MOST_HEX // contents.ROW


def test_a_payload_is_edited_where_a_form_gives_it_back() -> None:
    """Byte for byte, and as people see it; what was JSON stays JSON, and the error quotes nothing."""
    for kept in (b"", b"\n\ttwo\n\nlines\n", "ö, 日本".encode(), b"x" * contents.MOST_EDITED):
        text = contents.editable(kept)
        assert text is not None
        assert contents.edited(text.replace("\n", "\r\n"), kept, "text/plain") == kept
    for refused in (b"\xff", b"a\r\nb", b"\0", "a\u202eb".encode(), b"x" * (contents.MOST_EDITED + 1)):
        assert contents.editable(refused) is None
    assert contents.edited('{"a": 2}', b'{"a": 1}', "") == b'{"a": 2}'
    assert contents.edited("no json", b"{no json", "application/json") == b"no json"
    with pytest.raises(InvalidField, match=r"was JSON and is no more: .* in line 2, column 7") as told:
        contents.edited('{\r\n "a": secret}', b'{"a": 1}', "")
    assert "secret" not in str(told.value)


def test_a_trace_is_an_id_and_nothing_else() -> None:
    good = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    assert contents.trace_id({"traceparent": good}) == "4bf92f3577b34da6a3ce929d0e0e4736"
    for bad in (
        "",
        "00-x-y-z",
        f"00-{'0' * 32}-1-1",
        "00-../../../../aaaaaaaaaaaaaaaaaaaaaaa-1-1",
        f"00-{'A' * 32}-1-1",
    ):
        assert contents.trace_id({"traceparent": bad}) == ""


def test_errors_that_differ_in_numbers_and_names_have_one_shape() -> None:
    first, second = (
        f"Timeout after {number} s at 10.0.0.{number}:5432 for 'user{number}' (request {uuid})\nat {number}"
        for number, uuid in (
            (3, "1b4e28ba-2fa1-11d2-883f-0016d3cca427"),
            (77, "6fa459ea-ee8a-3ca4-894e-db77e160355e"),
        )
    )
    assert shape(first) == shape(second) == "Timeout after … s at … for … (request …)"
    assert shape("refused") != shape("timed out")
    assert len(shape("x" * 100_000)) <= 160
    assert shape("no route\r\nto host") == shape("no route") == "no route"
    assert shape("a\rb\tc\0d") == "a b c⟨U+0000⟩d"  # a form gives it back as it was


def test_instants_are_read_as_they_are_written() -> None:
    for text, instant in (
        ("2026-11-24T08:00:00Z", 1_795_507_200_000_000),
        ("2026-11-24T09:00:00+01:00", 1_795_507_200_000_000),
        ("2026-11-24T08:00", 1_795_507_200_000_000),
        ("2026-11-24T08:00:00.000001Z", 1_795_507_200_000_001),
        ("", None),
    ):
        assert PageCall({"at": text}, "").instant("at") == instant
    assert shown.utc(1_795_507_200_000_001) == "2026-11-24T08:00:00.000001Z"
    with pytest.raises(InvalidField, match="write it as"):
        PageCall({"at": "soon"}, "").instant("at")


def test_a_setting_says_where_it_comes_from() -> None:
    settings = Settings.model_validate(
        {"defaults": {"lease_ttl": 60}, "topics": {"t": {"retry": {"max": 5}}}}
    )
    found = {each.name: (each.value, each.origin) for each in origins(settings, "t")}
    assert found["retry.max"] == ("5.0", "topics.t")
    assert found["lease_ttl"] == ("60.0", "defaults")
    assert found["claim_batch"] == ("300", "built in")
    assert {each.origin for each in origins(Settings(), "other")} == {"built in"}


def test_what_others_wrote_is_what_its_list_says() -> None:
    """Each vendored file has the sum that stands beside it, and its licence."""
    place = HERE / "assets" / "vendor"
    said = (place / "README.txt").read_text(encoding="utf-8")
    files = [file for file in place.iterdir() if file.suffix in (".js", ".css")]
    assert len(files) == said.count("sha256 ") == 3
    for file in files:
        assert hashlib.sha256(file.read_bytes()).hexdigest() in said, file.name
        assert (place / f"{file.name.split('-')[0]}-LICENSE.txt").is_file()


def test_a_table_of_partitions_costs_by_their_number() -> None:
    """Not by its square: 1,024 of them held up a relay, which makes pages beside its timers, for a second."""
    reads = 0

    class Part:
        due, dead, first = 0, 0, None

        @property
        def timers(self) -> int:
            nonlocal reads
            reads += 1
            return 7

    page = render("part_partitions.html", {"parts": [Part() for _ in range(1_024)], "first": 0})
    assert page.count('<meter min="0" max="7" value="7"') == 1_024
    assert reads <= 3 * 1_024
