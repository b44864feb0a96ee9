"""A file on S3 is created once, whatever becomes of requests and answers on the way."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest
from py4j.protocol import Py4JJavaError

from relay.core.errors import InvalidField
from relay.pipeline.spark import s3
from relay.pipeline.spark.files import Files
from relay.pipeline.spark.session import configured
from tests.pipeline.object_store import BUCKET, LONGEST, LOST, Gate, ObjectStore

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from tests.pipeline.object_store import Rule

pytestmark = pytest.mark.slow

CONFLICT = (409, "ConditionalRequestConflict")
REFUSED = (412, "PreconditionFailed")


@pytest.mark.parametrize(
    ("log_store", "stands"), [("relay.S3LogStore", b"second\n"), ("S3SingleDriverLogStore", b"first\n")]
)
def test_two_write_one_version(
    spark: SparkSession, store: ObjectStore, log_store: str, stands: bytes
) -> None:
    """The race: one has looked and is about to write a version, another writes it meanwhile. With the log
    store that Delta has for S3 the first one then replaces what the second one wrote, and is told nothing."""
    java: Any = spark._jvm
    key = f"{log_store}/_delta_log/{0:020d}.json"
    path = java.org.apache.hadoop.fs.Path(f"s3a://{BUCKET}/{key}")
    conf = spark._jsparkSession.sessionState().newHadoopConf()
    made = java.relay.S3LogStore if "relay" in log_store else java.io.delta.storage.S3SingleDriverLogStore
    store.client().put_object(Bucket=BUCKET, Key=f"{log_store}/_delta_log/", Body=b"")
    lines = java.java.util.ArrayList()
    lines.add("first")
    failures: list[str] = []

    def first() -> None:
        try:
            made(conf).write(path, lines.iterator(), False, conf)
        except Py4JJavaError as failure:
            failures.append(failure.java_exception.getClass().getName())

    store.gate = gate = Gate("PUT", key)
    thread = threading.Thread(target=first)
    thread.start()
    assert gate.reached.wait(LONGEST), "the first one is about to write"
    store.client().put_object(Bucket=BUCKET, Key=key, Body=b"second\n")
    gate.opened.set()
    thread.join(LONGEST)
    assert store.content(key) == stands
    refused = stands == b"second\n"
    assert failures == ["java.nio.file.FileAlreadyExistsException"] * refused, "by which Delta knows"


def after(*answers: tuple[int, str] | None, other: Callable[[], object] = lambda: None) -> Rule:
    """What becomes of the creations of `file`, one by one; then they go on. Before the first is answered,
    `other` is called."""
    left, begun = list(answers), list[str]()

    def rule(method: str, path: str) -> tuple[int, str] | None:
        if method != "PUT" or not path.endswith("/file") or "other" in begun:
            return None
        if not begun:
            begun.append("other")
            other()
            begun[0] = "ours"
        return left.pop(0) if left else None

    return rule


@pytest.mark.parametrize(
    ("answers", "others", "made"),
    [
        pytest.param([LOST], False, True, id="its answer is lost, and S3A is refused by its own file"),
        pytest.param([LOST], True, False, id="the answer is lost that another was first"),
        pytest.param([CONFLICT], False, True, id="another creation was under way, and failed"),
        pytest.param([CONFLICT, CONFLICT], True, False, id="another creation was under way, and was done"),
        pytest.param([REFUSED], False, False, id="another's file is gone again"),
        pytest.param([(503, "SlowDown"), LOST], False, True, id="S3 is slow, and an answer is lost"),
    ],
)
def test_a_file_is_created_once(
    spark: SparkSession,
    store: ObjectStore,
    answers: list[tuple[int, str]],
    others: bool,
    made: bool,
    request: pytest.FixtureRequest,
) -> None:
    """Who is told that it has created the file has; nobody else is, and its content is not replaced."""
    folder = f"once-{abs(hash(request.node.name))}"
    files = Files(spark, f"s3a://{BUCKET}/{folder}")

    def other() -> None:
        if others:
            store.client().put_object(Bucket=BUCKET, Key=f"{folder}/file", Body=b"theirs")

    with store.refusing(after(*answers, other=other)):
        assert files.publish("file", "ours") is made
    assert files.read("file") == ("ours" if made else "theirs" if others else None)
    assert files.publish("file", "later") is (not made and not others)


def test_who_cannot_look_does_not_guess(spark: SparkSession, store: ObjectStore) -> None:
    """The race: the file is created, the answer is lost, S3A is refused, and may not look whose file that is.
    A refusal would have Delta write the same commit once more."""
    files = Files(spark, f"s3a://{BUCKET}/blind")
    created = after(LOST)

    def rule(method: str, path: str) -> tuple[int, str] | None:
        return (403, "AccessDenied") if method == "HEAD" else created(method, path)

    with store.refusing(rule), pytest.raises(Py4JJavaError, match="RemoteFileChangedException"):
        files.publish("file", "ours")
    assert files.read("file") == "ours"


@pytest.mark.parametrize("log_store", [None, "io.delta.storage.GCSLogStore"])
def test_a_session_that_would_lose_commits_is_refused(
    spark: SparkSession, store: ObjectStore, log_store: str | None
) -> None:
    """Somebody else's session, before anything is written: with Delta's own log store, or one of those that
    look first on S3. Delta hears of no setting that is made once the session is there."""
    java: Any = spark._jsc
    started = java.sc().conf()
    started.remove(s3.LOG_STORE) if log_store is None else started.set(s3.LOG_STORE, log_store)
    try:
        with (
            configured(spark, s3.SETTINGS),
            pytest.raises(InvalidField, match=f"would lose commits.* --conf {s3.LOG_STORE}={s3.CLASS}"),
        ):
            Files(spark, f"s3a://{BUCKET}/lake")
        Files(spark, "/a/local/path")
    finally:
        started.set(s3.LOG_STORE, s3.CLASS)
    with pytest.raises(InvalidField, match="path: is s3://…; write s3a://…"):
        Files(spark, f"s3://{BUCKET}/lake")
