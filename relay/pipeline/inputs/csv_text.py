"""Splits CSV as RFC 4180 has it into records, byte for byte. This module knows neither Spark nor files.

A record ends at a line break outside quotes; `"` quotes and is doubled inside. Nothing is trimmed, and no
line break inside quotes is changed. Text that breaks these rules is handed out unchanged with a reason, since
a reader that guesses makes timers that nobody wrote. Spark's own reader guesses, takes an empty value for a
missing one, and has no line numbers.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from relay.core.errors import InvalidField

LONGEST = 32 << 20
"""The most bytes of a record. A quote that is not closed within as many is taken to be never closed."""

OPTIONS = {
    "sep": "delimiter",
    "delimiter": "delimiter",
    "quote": "quote",
    "escape": "escape",
    "nullvalue": "null",
    "encoding": "encoding",
    "charset": "encoding",
}
"""Spark's names, in lower case, and ours."""

NOT_CLOSED = "opens a quote that is never closed"
NOT_IN_LINE = "opens a quote that is not closed in its line; leave --single-line out if values span lines"
BEHIND_QUOTE = "has text behind a closing quote; a quote inside a quoted value has to be doubled"
STRAY_QUOTE = "has a quote in a value that is not quoted; quote the value, and double the quote"
LONE_RETURN = "ends in a carriage return, while the header's line ends without one; quote the value"
NOT_TEXT = "is not {encoding}; name the file's encoding with --read-option encoding=…"


@dataclass(frozen=True, slots=True)
class Dialect:
    """How values are written. If `escape` equals `quote`, quotes are doubled; another `escape` works inside
    quotes. If `quote` is empty, nothing is quoted, and `escape` works everywhere.

    `null` is the text of a missing value if it is not quoted. With `single_line` no value spans lines.
    """

    delimiter: str = ","
    quote: str = '"'
    escape: str = '"'
    null: str = ""
    encoding: str = "UTF-8"
    single_line: bool = False

    @classmethod
    def of(cls, options: Mapping[str, str], *, single_line: bool = False) -> Dialect:
        """Read a dialect from options with Spark's names. Raises `InvalidField`."""
        given = {OPTIONS[name.lower()]: value for name, value in options.items()}
        if given.get("delimiter") == "\\t":
            given["delimiter"] = "\t"
        given.setdefault("escape", given.get("quote", '"'))
        for name, least in (("delimiter", 1), ("quote", 0), ("escape", 0)):
            value = given.get(name, '"')
            if not least <= len(value) <= 1 or not value.isascii() or value in ("\r", "\n"):
                raise InvalidField(name, f"is {value!r}; give one ASCII character")
        if given.get("delimiter", ",") in (given.get("quote", '"'), given["escape"]):
            raise InvalidField("delimiter", "is the quote or the escape as well; give another one")
        try:
            "".encode(given.get("encoding", "UTF-8"))  # Python has codecs that are not for text, too
        except LookupError:
            raise InvalidField("encoding", f"{given['encoding']!r} is not known; try UTF-8") from None
        dialect = cls(**given, single_line=single_line)
        if single_line and "\n".encode(dialect.encoding) != b"\n":
            raise InvalidField("single_line", f"does not go with {dialect.encoding}: leave --single-line out")
        return dialect

    @property
    def utf8(self) -> bool:
        """Whether bytes can be used without decoding."""
        return codecs.lookup(self.encoding).name in ("utf-8", "utf-8-sig", "ascii")


@dataclass(slots=True)
class Records:
    """Records as columns: `values` has a list for each, `texts` the unchanged text, `lines` the line on which
    each began, and the last column says why a text is not a record."""

    values: list[list[bytes | None]] = field(default_factory=list)
    texts: list[bytes] = field(default_factory=list)
    lines: list[int | None] = field(default_factory=list)
    reasons: list[str | None] = field(default_factory=list)


class _Shapes:
    """The regular expressions of a dialect."""

    def __init__(self, dialect: Dialect) -> None:
        d, q, e = (re.escape(each.encode()) for each in (dialect.delimiter, dialect.quote, dialect.escape))
        inner = rb"\n" if dialect.single_line else b""
        if not q:
            plain = rb"[^%b\n%b]*+" % (d, e)
            value = rb"%b(?:%b(?s:.)%b)*+" % (plain, e, plain) if e else plain
        else:
            plain = rb"[^%b%b\n]*+" % (d, q)
            if e in (q, b""):
                held = rb"[^%b%b]*+" % (q, inner)
                quoted = rb"%b%b(?:%b%b%b)*+%b" % (q, held, q, q, held, q)
            else:
                held = rb"[^%b%b%b]*+" % (q, e, inner)
                quoted = rb"%b%b(?:%b(?s:.)%b)*+%b" % (q, held, e, held, q)
            value = rb"(?:%b|%b)" % (quoted, plain)
        self.record = re.compile(rb"%b(?:%b%b)*+\r?+" % (value, d, value))
        self.value = re.compile(rb"(?:^|%b)(%b)" % (d, value))
        anything = b"(?s:(.))" if not q else rb"([%b%b])" % (q, e)
        self.escaped = re.compile(e + anything)


class Splitter:  # see 0071
    """Splits one file, or a part of one, that comes in pieces which end at line breaks.

    `width` is the number of columns; None accepts any. `crlf` says how the header's line ends; with None the
    first record shows it. `line` is the number of the first line; None means that it is unknown.
    """

    def __init__(
        self, dialect: Dialect, width: int | None, *, crlf: bool | None = None, line: int | None = 1
    ) -> None:
        self._dialect, self._width, self.crlf, self._line = dialect, width, crlf, line
        self._shapes = _Shapes(dialect)
        self._delimiter, self._quote = dialect.delimiter.encode(), dialect.quote.encode()
        self._null, self._twice = dialect.null.encode(), self._quote * 2
        self._escape = dialect.escape.encode() or None
        self._rest = b""
        self._decoder: Any = None
        if not dialect.utf8:
            self._decoder = codecs.getincrementaldecoder(dialect.encoding)("surrogateescape")

    @property
    def line(self) -> int | None:
        """The line on which the incomplete record begins."""
        return self._line

    def split(self, piece: bytes, *, last: bool = False) -> Records:
        """Return the records that are complete now. With `last` the rest is one, too, if it ends outside
        quotes.

        Raises `InvalidField` if a quote is not closed for too long.
        """
        if self._decoder is not None:
            piece = self._decoded(piece, last=last)
        text = self._rest + piece
        found, at, size = Records(), 0, len(text)
        match: Any = self._shapes.record.match
        sound = _is_text(text)
        quick = sound and self._quote and self._escape == self._quote
        while at < size:
            end = match(text, at).end()
            if quick and end < size and text[end] == 0x0A and self._quickly(found, text[at:end]):
                at = end + 1
                continue
            reason = None
            if end < size and text[end] != 0x0A:
                reason = self._why_not(text, at, end)
                if reason is NOT_CLOSED:
                    end = size
                else:
                    end = text.find(b"\n", end)
                    end = size if end < 0 else end
            if end == size and not last:
                break  # the rest of it is still to come
            record = text[at:end]
            self._add(found, record, reason, sound=sound or _is_text(record))
            at = end + 1
        self._rest = text[at:]
        if len(self._rest) > LONGEST:
            raise InvalidField("source", f"{NOT_CLOSED}, not within {LONGEST >> 20} MiB")
        return found

    def _decoded(self, piece: bytes, *, last: bool) -> bytes:
        text: str = self._decoder.decode(piece)
        if last:
            begun, state = self._decoder.getstate()
            if begun == b"\n":  # it was added behind the file's last line, and is half a line break of UTF-16
                self._decoder.setstate((b"", state))
            text += self._decoder.decode(b"", True)
        return text.encode(errors="surrogateescape")

    def _quickly(self, found: Records, record: bytes) -> bool:
        """Do the work of `_add` for the usual records. Returns False, and does nothing, for others."""
        if record[-1:] == b"\r":
            if not self.crlf:
                return False
            record = record[:-1]
        elif self.crlf is None:
            return False
        null, quote, twice = self._null, self._quote, self._twice
        line, next_line = self._line, 1
        values: list[bytes | None]
        if quote in record:
            values = [
                each[1:-1].replace(twice, quote) if each[:1] == quote else None if each == null else each
                for each in self._shapes.value.findall(record)
            ]
            next_line += record.count(b"\n")
        else:
            values = [None if each == null else each for each in record.split(self._delimiter)]
        if len(values) != self._width:
            return False
        found.values.append(values)
        found.texts.append(record)
        found.lines.append(line)
        found.reasons.append(None)
        if line is not None:
            self._line = line + next_line
        return True

    def _why_not(self, text: bytes, at: int, end: int) -> str:
        if text[end : end + 1] != self._quote:
            return BEHIND_QUOTE
        if end == at or text[end - 1 : end] == self._delimiter:
            return NOT_IN_LINE if self._dialect.single_line else NOT_CLOSED
        return STRAY_QUOTE

    def _add(self, found: Records, record: bytes, reason: str | None, *, sound: bool) -> None:
        line = self._line
        if line is not None:
            self._line = line + 1 + (record.count(b"\n") if b"\n" in record else 0)
        if record in (b"", b"\r") and self._width != 1:
            return  # an empty line
        if record[-1:] == b"\r" and reason is None:
            if self.crlf is None:
                self.crlf = True
            if self.crlf or (record[-2:-1] == self._quote and self._quote):
                record = record[:-1]
            else:
                reason = LONE_RETURN
        elif self.crlf is None:
            self.crlf = False
        values: list[bytes | None] = []
        if not sound:
            reason = NOT_TEXT.format(encoding=self._dialect.encoding)
        elif reason is None:
            values = self._values(record)
            if len(values) != self._width and self._width is not None:
                reason = f"has {len(values)} values, but the header has {self._width} columns"
        found.values.append(values if reason is None else [None] * (self._width or 0))
        found.texts.append(record)
        found.lines.append(line)
        found.reasons.append(reason)

    def _values(self, record: bytes) -> list[bytes | None]:
        null, quote = self._null, self._quote
        found = self._shapes.value.findall(record)
        if not quote:
            return [None if each == null else self._plain(each) for each in found]
        return [
            self._plain(each[1:-1]) if each[:1] == quote else None if each == null else each for each in found
        ]

    def _plain(self, value: bytes) -> bytes:
        """Return a value without escapes."""
        if self._escape is None or self._escape not in value:
            return value
        if self._escape == self._quote:
            return value.replace(self._twice, self._quote)
        return self._shapes.escaped.sub(rb"\1", value)


def _is_text(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def without_bom(text: bytes, dialect: Dialect) -> bytes:
    """Return the beginning of a file without its byte order mark. UTF-16 keeps it, since the decoder needs
    it."""
    return text.removeprefix(codecs.BOM_UTF8) if dialect.utf8 else text


def header(head: bytes, dialect: Dialect, *, whole: bool) -> tuple[list[str], bool]:
    """Return the names of the first record, and whether its line ends in CR LF. `head` is the file's
    beginning, or with `whole` the whole file. Raises `InvalidField`."""
    splitter = Splitter(dialect, None)
    text = without_bom(head, dialect)
    if not text.strip():
        raise InvalidField("header", "is missing: the file holds only white space")
    found = splitter.split(text, last=whole)
    if not found.values:
        raise InvalidField("header", f"does not end within {len(head):,} bytes")
    if found.reasons[0] is not None:
        raise InvalidField("header", found.reasons[0])
    names = [(each or b"").decode().removeprefix("\ufeff") for each in found.values[0]]
    if any("\r" in name for name in names):
        raise InvalidField("header", "has a carriage return: end lines with LF or CR LF, not with CR")
    if "" in names:
        raise InvalidField("header", f"has no name for column {names.index('') + 1}; name it")
    lower = [name.lower() for name in names]
    twice = next((name for name in names if lower.count(name.lower()) > 1), None)
    if twice is not None:
        raise InvalidField("header", f"names {twice!r} twice; rename one (capitals make no difference)")
    return names, bool(splitter.crlf)
