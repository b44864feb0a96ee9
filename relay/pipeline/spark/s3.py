"""S3, by Hadoop's `s3a://`: its jars, how two drivers write there, and a sentence for what it refuses.

A version of a Delta table is the driver's that creates the version's file. Delta's own log store for S3 looks
whether the file is there, and then writes it: of two drivers that look before either writes, the second one
replaces the commit of the first, and its rows are lost. `S3LogStore.java` creates the file by a conditional
write instead, which S3 refuses to the second driver; Delta then resolves the conflict as on any store.
"""

from __future__ import annotations

import re
import zipfile
from importlib import resources
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pyspark.sql import SparkSession

from relay.core.errors import InvalidField

SCHEME = "s3a"
LOG_STORE = f"spark.delta.logStore.{SCHEME}.impl"
CLASS = "relay.S3LogStore"
SETTINGS = {LOG_STORE: CLASS}  # see 0117
"""What every session has."""
JAR = "relay-s3-log-store.jar"

SDK, MODULES = "2.35.4", ("s3", "s3-transfer-manager", "sts")
"""Amazon's SDK with which Spark's Hadoop was built (`aws-java-sdk-v2.version` of its `hadoop-project`), and
the modules that S3A needs; hadoop-aws asks for all of them, which are half a gigabyte."""
EXCLUDED = (
    "software.amazon.awssdk:bundle,io.netty:*,org.antlr:*,org.apache.httpcomponents:*,org.apache.spark:*,"
    "org.scala-lang*:*,org.slf4j:*"
)
"""What is not fetched: the whole SDK, and what Spark has."""


def coordinates(jars: Path) -> str:
    """Return the packages of S3A for the Hadoop among Spark's jars, for `spark.jars.packages`."""
    hadoop = next(jars.glob("hadoop-client-api-*.jar")).stem.rpartition("-")[2]
    modules = (f"software.amazon.awssdk:{each}:{SDK}" for each in MODULES)
    return ",".join([f"org.apache.hadoop:hadoop-aws:{hadoop}", *modules])


def compiled(spark: SparkSession, into: Path) -> Path:
    """Compile the log store with the Java and the jars of a session that has Delta and S3A; return its jar,
    which lies in the folder then. Raises Spark's errors."""
    source = f"{CLASS.rpartition('.')[2]}.java"
    java: Any = spark._jvm
    compiler = java.org.codehaus.janino.SimpleCompiler()  # Spark compiles its queries with it
    compiler.setParentClassLoader(java.Thread.currentThread().getContextClassLoader())
    compiler.cook(source, resources.files(__package__).joinpath(source).read_text(encoding="utf-8"))
    jar = into / JAR
    draft = jar.with_suffix(".part")
    with zipfile.ZipFile(draft, "w") as archive:
        for name, code in compiler.getBytecodes().items():
            archive.writestr(zipfile.ZipInfo(f"{name.replace('.', '/')}.class"), bytes(code))
    return draft.replace(jar)


def require(spark: SparkSession, path: str) -> None:
    """Raise `InvalidField` for a path on S3 to which the session would write as if it were the only driver,
    or can't write."""
    scheme = urlsplit(path).scheme
    if scheme in ("s3", "s3n"):
        raise InvalidField("path", f"is {scheme}://…; write s3a://…, which is Hadoop's name for S3")
    if scheme != SCHEME:
        return
    java: Any = spark._jsc
    store = java.sc().getConf().get(LOG_STORE, "")  # where Delta looks: a session's own settings don't count
    if store != CLASS:
        raise InvalidField(
            "spark",
            f"would lose commits on S3 if two drivers wrote at once, by {store or 'the log store of Delta'}:"
            f" start the session with --conf {LOG_STORE}={CLASS}",
        )
    jvm: Any = spark._jvm
    if "JavaPackage" in type(jvm.relay.S3LogStore).__name__:
        raise InvalidField("spark", _NEEDS)


# ------------------------------------------------------------------------------------ what S3 refuses

_NEEDS = "has no jars for s3a://: fetch them with relay pipeline jars --s3"
_SAID = {
    r"S3AFileSystem not found|NoClassDefFoundError: software/amazon/awssdk": f"Spark {_NEEDS}",
    r"\b(ExpiredToken(?:Exception)?)\b": (
        "S3 says that the credentials have expired ({0}): renew them and run the job again; it goes on where"
        " it was"
    ),
    r"\b(InvalidAccessKeyId|SignatureDoesNotMatch|InvalidToken)\b": (
        "S3 refuses the credentials ({0}): check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN"
        " and fs.s3a.endpoint"
    ),
    r"(NoAwsCredentialsException|No AWS Credentials|Unable to load credentials)": (
        "there are no credentials for S3: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or"
        " fs.s3a.aws.credentials.provider"
    ),
    r"UnknownStoreException: `?(s3a://[^/`\s']+)|NoSuchBucket": (
        "S3 has no bucket {0}: make it, or mend the path or fs.s3a.endpoint"
    ),
    r"(AWSServiceThrottledException|SlowDown)": (
        "S3 asked to slow down for longer than S3A tries ({0}): run the job again later, or raise"
        " fs.s3a.retry.throttle.limit"
    ),
    r"\b(AccessDenied(?:Exception)?)\b": (
        "S3 denies access ({0}): below its paths a job lists, reads, writes and deletes"
    ),
}
_OF_S3 = re.compile(r"s3a|awssdk|S3Exception", re.IGNORECASE)


def explained(text: str) -> str | None:
    """Return a failure of S3 as a sentence that says what to do; None for another failure, or one without a
    name."""
    if not _OF_S3.search(text):
        return None
    for pattern, says in _SAID.items():
        found = re.search(pattern, text)
        if found is not None:
            return says.format(*(group or "of this name" for group in found.groups()))
    return None
