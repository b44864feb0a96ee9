"""S3, by Hadoop's `s3a://`: its jars, how two drivers write there, and a sentence for what it refuses.

A version of a Delta table is the driver's that creates the version's file. Delta's own log store for S3 looks
whether the file is there, and then writes it: of two drivers that look before either writes, the second one
replaces the commit of the first, and its rows are lost. So sessions have another log store and a setting of
S3A, by which a file is created with `If-None-Match: *`, and S3 itself refuses the second. Delta takes such a
refusal for a fault, and gives up. `again` goes on with the version behind.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from relay.core.errors import InvalidField

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")

SCHEME = "s3a"
LOG_STORE = f"spark.delta.logStore.{SCHEME}.impl"
CREATING = "io.delta.storage.GCSLogStore"
"""The log store that leaves it to the file system to create a file only where none is."""
FLAGS = "fs.s3a.performance.flag"

SETTINGS = {LOG_STORE: CREATING, f"spark.hadoop.{FLAGS}": "create"}
"""What every session has. S3A's flag makes a creation conditional, and spares the look before."""

CONDITIONAL = "fs.option.create.conditional.overwrite"  # see 0117
"""The option of a file that S3 must create only where none is, whatever the flags are."""

SDK = ("s3", "s3-transfer-manager", "sts")
"""The modules of Amazon's SDK that S3A needs; hadoop-aws asks for all of them, which are half a gigabyte."""
NEWEST_SDK = "2.35.4"
SDK_OF_HADOOP = {"3.5": NEWEST_SDK}
"""The SDK with which a Hadoop was built (`aws-java-sdk-v2.version` of its `hadoop-project`)."""
IN_SPARK = (
    "io.netty:*,org.antlr:*,org.apache.httpcomponents:*,org.apache.spark:*,org.scala-lang*:*,org.slf4j:*"
)
EXCLUDED = f"software.amazon.awssdk:bundle,{IN_SPARK}"
"""What is not fetched: the whole SDK, and what Spark has."""

REFUSED = ("RemoteFileChangedException", "ConditionalRequestConflict")
"""The words of a creation that came second: status 412, or 409 while another one is being written."""
TRIES = 10


def coordinates(jars: Path) -> str:
    """Return the packages of S3A for the Hadoop among Spark's jars, for `spark.jars.packages`."""
    hadoop = next(jars.glob("hadoop-client-api-*.jar")).stem.rpartition("-")[2]
    sdk = SDK_OF_HADOOP.get(hadoop.rpartition(".")[0], NEWEST_SDK)
    modules = (f"software.amazon.awssdk:{each}:{sdk}" for each in SDK)
    return ",".join([f"org.apache.hadoop:hadoop-aws:{hadoop}", *modules])


def require(spark: SparkSession, path: str) -> None:
    """Raise `InvalidField("spark", …)` where a session would write Delta's log to this path on S3 as if it
    were the only driver."""
    if not path.startswith(f"{SCHEME}://"):
        return
    store = spark.conf.get(LOG_STORE, None) or spark.conf.get("spark.delta.logStore.class", None)
    flags = str(spark._jsparkSession.sessionState().newHadoopConf().get(FLAGS) or "")
    creates = bool({"create", "*"} & {flag.strip() for flag in flags.lower().split(",")})
    if store is None or store.endswith("S3SingleDriverLogStore") or (store == CREATING and not creates):
        wanted = " ".join(f"--conf {name}={value}" for name, value in SETTINGS.items())
        raise InvalidField(
            "spark",
            f"would lose commits on S3 if two drivers wrote to {without_secret(path)}: start the session with"
            f" {wanted}",
        )


def without_secret(path: str) -> str:
    """Return a path for people: without a password before its host."""
    return re.sub(r"//[^/@]*@", "//", path, count=1)


def refused(failure: BaseException) -> bool:
    """Whether S3 refused to create a file because another driver was first."""
    return any(word in str(failure)[:2000] for word in REFUSED)


def again(work: Callable[[], T], *failures: type[Exception]) -> T:
    """Do what ends in one commit, and once more whenever another driver's commit was first. It must not
    matter if it is done twice: a commit whose answer was lost on the way is refused when it is repeated."""
    for _ in range(TRIES - 1):
        try:
            return work()
        except failures as failure:
            if not refused(failure):
                raise
    return work()


# ------------------------------------------------------------------------------------ what S3 refuses

_NEEDS = "s3a:// needs Hadoop's jars for S3: fetch them with relay pipeline jars --s3"
_SAID = {
    r"S3AFileSystem not found|NoClassDefFoundError: software/amazon/awssdk": _NEEDS,
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
    "|".join(REFUSED): "other drivers committed first, again and again: run the job again",
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
