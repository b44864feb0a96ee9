"""Files of refused rows, which the workers write: Parquet, one for each task, with a name of its own."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable
from typing import Any, Self

import pyarrow as pa
import pyarrow.fs
import pyarrow.parquet as pq

from relay.pipeline.rows.reading import REJECTS


class RejectsFile:
    """A file that is made with the first row, in a folder or under any URL that pyarrow knows, or s3a://….
    With None no rows may come."""

    def __init__(self, folder: str | None) -> None:
        self._folder = folder
        self._writer: Any = None
        self.names: tuple[str, ...] = ()

    def add(self, rows: pa.RecordBatch) -> None:
        """Write rows. Raises `ValueError` if there is no place for them."""
        if self._folder is None:
            raise ValueError("there is no place for rejects")
        if self._writer is None:
            fs, path = pyarrow.fs.FileSystem.from_uri(_url(self._folder))
            fs.create_dir(path, recursive=True)
            name = f"rejects-{uuid.uuid4().hex}.parquet"
            self._writer = pq.ParquetWriter(f"{path}/{name}", REJECTS, filesystem=fs)
            self.names = (f"{_url(self._folder)}/{name}",)
        self._writer.write_batch(rows)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, failure: object, *_: object) -> None:
        if self._writer is not None:
            self._writer.close()
        if failure is not None:
            remove(self.names)


def remove(names: Iterable[str]) -> None:
    """Remove the file of a task that does not count."""
    for name in names:
        fs, path = pyarrow.fs.FileSystem.from_uri(name)
        fs.delete_file(path)


def keep_only(folder: str, names: Collection[str]) -> None:
    """Remove all files of a folder except these."""
    fs, path = pyarrow.fs.FileSystem.from_uri(_url(folder))
    for found in fs.get_file_info(pyarrow.fs.FileSelector(path, allow_not_found=True)):
        if f"{_url(folder)}/{found.base_name}" not in names:
            fs.delete_file(found.path)


def _url(folder: str) -> str:
    """Return file system and path, by pyarrow's names; a plain path may be relative."""
    if folder.startswith("s3a://"):  # Hadoop's name, and its options are Java's: the environment has ours
        return f"s3://{folder.removeprefix('s3a://')}".rstrip("/")
    if "://" in folder or folder.startswith("file:"):
        return folder.rstrip("/")
    from pathlib import Path

    return Path(folder).absolute().as_uri().rstrip("/")
