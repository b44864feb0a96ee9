"""CSV split into records: what Python's csv writes in any dialect comes back; what is no CSV is refused."""

from __future__ import annotations

import csv
import io
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.core.errors import InvalidField
from relay.pipeline.inputs import csv_text
from relay.pipeline.inputs.csv_text import Dialect, Records, Splitter, header
from tests.pipeline import nasty

HEAD = ("a", "b", "c")


def split(text: bytes, dialect: Dialect | None = None, width: int | None = 3, size: int = 0) -> Records:
    """All records of a text that comes in pieces of `size` lines; 0: in one."""
    splitter = Splitter(dialect or Dialect(), width)
    lines = re.findall(rb"[^\n]*\n|[^\n]+\Z", text) if size else [text]
    found = Records()
    pieces = [b"".join(lines[n : n + size or None]) for n in range(0, len(lines), size or 1)]
    for n, piece in enumerate(pieces):
        more = splitter.split(piece, last=n == len(pieces) - 1)
        found.values += more.values
        found.texts += more.texts
        found.lines += more.lines
        found.reasons += more.reasons
    return found


def texts(values: list[bytes | None]) -> list[str]:
    return [(each or b"").decode() for each in values]


CELLS = st.text(st.sampled_from([*'",\n\r\t;\\ aé😀', "\0", "'"]), max_size=8)
ROWS = st.lists(st.lists(CELLS, min_size=3, max_size=3), max_size=8)
DIALECTS = [
    ({"quoting": csv.QUOTE_MINIMAL}, Dialect()),
    ({"quoting": csv.QUOTE_ALL}, Dialect()),
    ({"quoting": csv.QUOTE_NONNUMERIC}, Dialect()),
    ({"quoting": csv.QUOTE_ALL, "doublequote": False, "escapechar": "\\"}, Dialect(escape="\\")),
    ({"quoting": csv.QUOTE_NONE, "quotechar": None, "escapechar": "\\"}, Dialect(quote="", escape="\\")),
    ({"quoting": csv.QUOTE_MINIMAL, "delimiter": "\t", "quotechar": "'"}, Dialect("\t", "'", "'")),
]


@pytest.mark.parametrize(("written", "dialect"), DIALECTS)
@given(rows=ROWS, size=st.integers(0, 3))
def test_what_python_writes(written: Any, dialect: Dialect, rows: list[list[str]], size: int) -> None:
    """Every value comes back byte for byte, in whatever pieces the text comes."""
    out = io.StringIO(newline="")
    writer = csv.writer(out, lineterminator="\r\n", **written)
    writer.writerow(HEAD)
    writer.writerows(rows)
    found = split(out.getvalue().encode(), dialect, size=size)
    assert found.reasons == [None] * (len(rows) + 1)
    assert [texts(each) for each in found.values] == [list(HEAD), *rows]
    assert b"\r\n".join([*found.texts, b""]) == out.getvalue().encode()


def test_line_ends_of_the_writer_that_quotes_no_return() -> None:
    """Python before 3.13, and so pandas, leaves a lone CR unquoted where lines end in LF. In a value it is
    one; at the end of a line it can't be told from a line end, and is refused."""
    found = split(b'a,b,c\nx\ry,\r,z\n1,2,z\r\n1,2,"z"\r\n')
    assert found.values[1] == [b"x\ry", b"\r", b"z"]
    assert found.reasons == [None, None, csv_text.LONE_RETURN, None]
    assert found.texts[2] == b"1,2,z\r"
    mixed = split(b"a,b,c\r\n1,2,3\n4,5,6\r\n")
    assert mixed.values[1:] == [[b"1", b"2", b"3"], [b"4", b"5", b"6"]]


def test_missing_and_empty() -> None:
    """What is quoted is there; what is not, and is the text of a missing value, is missing."""
    assert split(b'"",,"NULL"\n').values == [[b"", None, b"NULL"]]
    assert split(b'"\\N",\\N,\n', Dialect(null="\\N")).values == [[b"\\N", None, b""]]
    assert split(b"\\N,a\\,b,\n", Dialect(quote="", escape="\\", null="\\N")).values == [[None, b"a,b", b""]]


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (b"1,2", "has 2 values, but the header has 3 columns"),
        (b"1,2,3,4", "has 4 values, but the header has 3 columns"),
        (b'1,"2"x,3', csv_text.BEHIND_QUOTE),
        (b'1,"a\nb" ,3', csv_text.BEHIND_QUOTE),
        (b'1,5" pipe,3', csv_text.STRAY_QUOTE),
        (b'1, "2",3', csv_text.STRAY_QUOTE),
        (b"1,\xff,3", "is not UTF-8; name the file's encoding with --read-option encoding=…"),
    ],
)
@pytest.mark.parametrize("size", [0, 1])
def test_what_is_no_record(record: bytes, reason: str, size: int) -> None:
    """Is refused as it stands, with its line; the records around it are none the worse."""
    found = split(b'"x\ny",b,c\n' + record + b"\n4,5,6\n", size=size)
    assert found.reasons == [None, reason, None]
    assert found.texts[1] == record
    assert found.values[1:] == [[None] * 3, [b"4", b"5", b"6"]]
    assert found.lines == [1, 3, 4 + record.count(b"\n")]


@pytest.mark.parametrize("size", [0, 1])
def test_a_quote_that_is_never_closed(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Takes all that is behind it: whether that is a value or records, nobody knows. It is one refused record
    up to a bound."""
    found = split(b'1,2,3\n4,"5,6\n7,8,9\n', size=size)
    assert found.reasons == [None, csv_text.NOT_CLOSED]
    assert found.texts[1] == b'4,"5,6\n7,8,9\n'
    monkeypatch.setattr(csv_text, "LONGEST", 10)
    with pytest.raises(InvalidField, match="never closed, not within 0 MiB"):
        Splitter(Dialect(), 3).split(b'4,"5,6\n7,8,9\n')


def test_one_record_a_line() -> None:
    """With `single_line` a quote has to be closed in its line."""
    found = split(b'1,"2",3\n4,"5\n6",7\n8,9,"1,0"\n', Dialect(single_line=True))
    assert found.values[0] == [b"1", b"2", b"3"]
    assert found.values[3] == [b"8", b"9", b"1,0"]
    assert found.reasons[1] == csv_text.NOT_IN_LINE
    assert found.reasons[2] is not None


def test_empty_lines() -> None:
    """Are none of a file's records, unless it has one column: there it is a missing value."""
    assert split(b"1,2,3\n\n\r\n4,5,6\n").lines == [1, 4]
    assert split(b"1\n\n2\n", width=1).values == [[b"1"], [None], [b"2"]]


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252", "utf-16", "utf-16-le", "shift_jis", "utf-8-sig"])
def test_other_encodings(encoding: str) -> None:
    """Become UTF-8, wherever the pieces end."""
    one, two, three = ("表", "能", "ソ") if encoding == "shift_jis" else ("é", "ß", "ü")
    said = f'{one},"a\n""{two}"",{one}",{three}\n'.encode(encoding)
    found = split(csv_text.without_bom(said, Dialect()), Dialect(encoding=encoding), size=1)
    assert texts(found.values[0]) == [one, f'a\n"{two}",{one}', three]


@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-8", "latin-1"])
def test_the_last_line_of_a_file(encoding: str, end: str) -> None:
    """Spark gives lines without their ends, cut at each byte 0x0A, and does not tell whether the last one had
    an end."""
    high = "\u0a0a" if "utf" in encoding else "é"
    lines = f"1,2,{high}\r\n4,5,{high}{end}".encode(encoding).removesuffix(b"\n").split(b"\n")
    splitter = Splitter(Dialect(encoding=encoding), 3, crlf=True)
    pieces = [splitter.split(line + b"\n") for line in lines]
    pieces.append(splitter.split(b"", last=True))
    rows = [texts(row) for piece in pieces for row in piece.values]
    assert rows == [["1", "2", high], ["4", "5", high]]


def test_bytes_that_are_not_of_the_encoding() -> None:
    wrong = split(b"\x81,b,c\n", Dialect(encoding="cp1252"))
    assert wrong.reasons == ["is not cp1252; name the file's encoding with --read-option encoding=…"]


@pytest.mark.parametrize(
    ("head", "said"),
    [
        (b" ", "header: is missing: the file holds only white space"),
        (b"\xef\xbb\xbf\n", "header: is missing: the file holds only white space"),
        (b"a,,c\n", "header: has no name for column 2"),
        (b"a,b,A\n", "header: names 'a' twice"),
        (b"a\rb\r1,2\r", "header: has a carriage return"),
        (b'a,"b', "header: opens a quote that is never closed"),
        (b"\xff\xfe\n", "header: is not UTF-8"),
    ],
)
def test_headers_that_are_none(head: bytes, said: str) -> None:
    with pytest.raises(InvalidField, match=re.escape(said)):
        header(head, Dialect(), whole=True)


def test_headers() -> None:
    """Are read with or without a byte order mark, quoted or not, whatever ends the line."""
    assert header(b'\xef\xbb\xbf"id","a\nb"\r\n1', Dialect(), whole=False) == (["id", "a\nb"], True)
    assert header(b"id,b", Dialect(), whole=True) == (["id", "b"], False)
    assert header("id,é\n".encode("utf-16"), Dialect(encoding="utf-16"), whole=True) == (["id", "é"], False)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"sep": ",,"}, "delimiter: is ',,'"),
        ({"quote": "\n"}, "quote: is '\\n'"),
        ({"escape": "é"}, "escape: is 'é'"),
        ({"delimiter": '"'}, "delimiter: is the quote or the escape"),
        ({"encoding": "utf-9"}, "encoding: 'utf-9' is not known"),
        ({"encoding": "base64"}, "encoding: 'base64' is not known"),
    ],
)
def test_dialects_that_are_none(options: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidField, match=re.escape(said)):
        Dialect.of(options)


def test_dialects() -> None:
    """Have Spark's names, in any case; quotes are doubled unless an escape is named."""
    assert Dialect.of({"SEP": "\\t", "nullValue": "\\N"}) == Dialect(delimiter="\t", null="\\N")
    assert Dialect.of({"quote": "'"}) == Dialect(quote="'", escape="'")
    assert Dialect.of({"quote": ""}) == Dialect(quote="", escape="")
    with pytest.raises(InvalidField, match="single_line: does not go with UTF-16"):
        Dialect.of({"charset": "UTF-16"}, single_line=True)


def test_values_made_to_break_readers() -> None:
    """The corpus of the other tests, as Python writes it, a line a piece."""
    rows = [[str(n), each, "end"] for n, each in enumerate(nasty.values(nul=True))]
    out = io.StringIO(newline="")
    csv.writer(out).writerows(rows)
    assert [texts(each) for each in split(out.getvalue().encode(), size=1).values] == rows
