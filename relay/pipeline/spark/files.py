"""Small files beside the tables, wherever Spark can write: a folder, HDFS, S3, GCS."""

from __future__ import annotations

import os
import uuid
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from relay.pipeline.spark import s3

RENAMES = {"hdfs", "viewfs", "webhdfs", "ofs"}
"""The file systems in which a rename refuses to replace. In object stores a file appears whole when it is
closed."""

_AT_ONCE = 16


class Files:
    """The files under a folder, by names relative to it. Methods raise the errors of Hadoop's file
    systems; and `InvalidField` is raised for a folder on S3 that the session must not write to."""

    def __init__(self, spark: SparkSession, root: str) -> None:
        s3.require(spark, root)
        self._jvm: Any = spark._jvm
        conf = spark._jsparkSession.sessionState().newHadoopConf()
        self._fs = self._path(root).getFileSystem(conf)
        self.root: str = self._fs.makeQualified(self._path(root)).toString()

    def at(self, name: str) -> str:
        """Return the whole path."""
        return f"{self.root}/{name}" if name else self.root

    def names(self, folder: str) -> list[str]:
        """List a folder, sorted; empty if there is none."""
        try:
            listed = self._fs.listStatus(self._path(self.at(folder)))
        except Py4JJavaError as failure:
            if not _is_missing(failure):
                raise
            return []
        return sorted(status.getPath().getName() for status in listed)

    def age(self, name: str, now: float) -> float:
        """Return the seconds since a file was changed; `now` is in unix seconds. It is 0 if the store doesn't
        know, as for folders that are only prefixes of names, so that nothing that is being written is taken
        for old."""
        changed: int = self._fs.getFileStatus(self._path(self.at(name))).getModificationTime()
        return now - changed / 1000 if changed > 0 else 0.0

    def read(self, name: str) -> str | None:
        """Read a small file's text; None if there is no file."""
        try:
            stream = self._fs.open(self._path(self.at(name)))
        except Py4JJavaError as failure:
            if not _is_missing(failure):
                raise
            return None
        try:
            return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream)).decode()
        finally:
            stream.close()

    def publish(self, name: str, text: str) -> bool:
        """Create a file with all of its text. If it exists, this returns False and does nothing."""
        target = self.at(name)
        scheme = urlsplit(target).scheme
        if scheme == "file":
            return _link(Path("/" + target.removeprefix("file:").lstrip("/")), text)  # Hadoop quotes nothing
        if scheme in RENAMES:
            draft = self._path(f"{target}.{uuid.uuid4().hex}")
            self._write(draft, text)
            if self._fs.rename(draft, self._path(target)):
                return True
            self._fs.delete(draft, False)
            return False
        if scheme == s3.SCHEME:
            made = self._jvm.relay.S3LogStore.create(self._fs, self._path(target), text.encode())
            return bool(made)
        try:
            self._write(self._path(target), text)
        except Py4JJavaError as failure:
            if "FileAlreadyExists" in str(failure.java_exception.getClass().getName()):
                return False
            raise
        return True

    def remove(self, name: str) -> bool:
        """Remove a file, or a folder with its content. Returns whether there was one."""
        return bool(self._fs.delete(self._path(self.at(name)), True))

    def _write(self, path: Any, text: str) -> None:
        stream = self._fs.create(path, False)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()

    def _path(self, text: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(text)


def _is_missing(failure: Py4JJavaError) -> bool:
    """Whether a file is not there. To look before would be one more request."""
    return "FileNotFoundException" in str(failure.java_exception.getClass().getName())


def head(spark: SparkSession, file: str, most: int) -> bytes:
    """Read a file's first bytes, uncompressed, with Spark's file systems and codecs. `file` is a URL."""
    java: Any = spark.sparkContext._jvm
    conf = spark._jsparkSession.sessionState().newHadoopConf()
    path = java.org.apache.hadoop.fs.Path(java.java.net.URI(file))
    stream = path.getFileSystem(conf).open(path)
    try:
        begun = java.java.io.PushbackInputStream(stream)
        first = begun.read()
        if first < 0:  # codecs fail on a file without a byte
            return b""
        begun.unread(first)
        codec = java.org.apache.hadoop.io.compress.CompressionCodecFactory(conf).getCodec(path)
        return bytes((codec.createInputStream(begun) if codec is not None else begun).readNBytes(most))
    finally:
        stream.close()


def heads(spark: SparkSession, files: Sequence[str], most: int) -> list[bytes]:
    """Read the first bytes of each file, of several at once."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(lambda file: head(spark, file, most), files))


def _link(target: Path, text: str) -> bool:
    """Create a file on a local disk: write it aside, then give it its name, which fails if the name is
    taken."""
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
    try:
        with draft.open("x", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        target.hardlink_to(draft)
    except FileExistsError:
        return False
    finally:
        draft.unlink(missing_ok=True)
    return True
