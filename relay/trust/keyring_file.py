"""Reads a keyring's file.

    write: k2026-11          the key that seals; all others only open
    keys:
      k2026-11: {file: k2026-11.key}     32 bytes, or their base64; beside this file, or an absolute path
      k2026-05: {base64: "…"}            32 bytes in base64

JSON of this form is YAML, and is read as well. No message quotes a key.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from relay.trust.ciphers import KEY_BYTES
from relay.trust.files import BadFile, read

SETTING = "sealing.keyring"

MOST_KEYS = 100

_KEY_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")


class _Misread(Exception):
    """What the file says is wrong."""


def read_keyring(file: Path, named: list[Path] | None = None) -> tuple[str, Mapping[str, bytes]]:
    """Return the id of the key that seals, and all keys by id. The files of keys that it names are added to
    `named`, whether they can be read or not. Raises `BadFile`."""
    try:
        return _keyring(file, [] if named is None else named)
    except _Misread as wrong:
        raise BadFile(SETTING, file, str(wrong)) from None


def _keyring(file: Path, named: list[Path]) -> tuple[str, Mapping[str, bytes]]:
    tree = _tree(read(SETTING, file))
    if not isinstance(tree, dict) or tree.keys() != {"write", "keys"}:
        raise _Misread("must have the fields write and keys, and no others")
    keys, writes = tree["keys"], tree["write"]
    if not isinstance(keys, dict) or not 1 <= len(keys) <= MOST_KEYS:
        raise _Misread(f"keys: must map ids to keys, from 1 to {MOST_KEYS} of them")
    found = {_key_id(key_id): _key(file, key_id, said, named) for key_id, said in keys.items()}
    if not isinstance(writes, str) or writes not in found:
        raise _Misread("write: must be the id of a key that keys has")
    return writes, found


def _tree(raw: bytes) -> Any:
    try:
        return yaml.safe_load(raw)
    except yaml.YAMLError as problem:
        mark = getattr(problem, "problem_mark", None)
        where = f" at line {mark.line + 1}" if mark is not None else ""
        raise _Misread(f"is not YAML{where}; give write and keys") from None
    except UnicodeDecodeError:
        raise _Misread("is not text; give YAML with write and keys") from None
    except (ValueError, TypeError, AttributeError, RecursionError):
        # PyYAML's own for texts that look like dates or numbers and are none, and for deep nesting.
        raise _Misread("has a value that YAML can't read; put ids and paths in quotes") from None


def _key_id(key_id: Any) -> str:
    if not isinstance(key_id, str) or not _KEY_ID.fullmatch(key_id):
        raise _Misread(
            "keys: an id must be 1 to 64 letters, digits, '.', '_' or '-', and in quotes if it is a number"
        )
    return key_id


def _key(file: Path, key_id: str, said: Any, named: list[Path]) -> bytes:
    field = f"keys.{key_id}"
    if not isinstance(said, dict) or len(said) != 1 or not isinstance(next(iter(said.values())), str):
        raise _Misread(f"{field}: must be either {{file: PATH}} or {{base64: TEXT}}")
    kind, value = next(iter(said.items()))
    if kind == "file":
        raw = _key_file(file, f"{field}.file", file.parent / value, named)
        return raw if len(raw) == KEY_BYTES else _decoded(raw, f"{field}.file")
    if kind == "base64":
        return _decoded(value.encode(errors="replace"), f"{field}.base64")
    raise _Misread(f"{field}: must be either {{file: PATH}} or {{base64: TEXT}}")


def _key_file(file: Path, field: str, path: Path, named: list[Path]) -> bytes:
    named.append(path)
    try:
        return read(f"{SETTING}: {file} {field}", path)
    except ValueError:
        raise _Misread(f"{field}: can't be read: a path has no zero byte and no surrogate") from None


def _decoded(text: bytes, field: str) -> bytes:
    try:
        key = base64.b64decode(text.strip(), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if len(key) != KEY_BYTES:
        raise _Misread(
            f"{field}: must be {KEY_BYTES} bytes in base64; make some by: "
            f"head -c {KEY_BYTES} /dev/urandom | base64"
        )
    return key
