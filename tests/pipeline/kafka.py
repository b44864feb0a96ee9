"""A Kafka broker of its own: one process on loopback, in KRaft mode."""

from __future__ import annotations

import subprocess
import uuid
from base64 import urlsafe_b64encode
from pathlib import Path
from types import TracebackType
from typing import Self

from kafka import KafkaAdminClient
from kafka.errors import KafkaError

from relay.pipeline.spark.delta import jars_of_spark
from relay.pipeline.spark.java import java_home
from tests.pipeline.kafka_jars import PLACE
from tests.servers import free_port
from tests.worlds.waiting import eventually

START_TIMEOUT = 400.0  # seconds
SMALL = ("-Xmx192m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")


class Kafka:
    """`at` is its address."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self.at = f"127.0.0.1:{free_port()}"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        controller = f"127.0.0.1:{free_port()}"
        settings = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@{controller}",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://{self.at},CONTROLLER://{controller}",
            "log.dirs": str(self._place / "log"),
            "offsets.topic.replication.factor": "1",
            "log.cleaner.enable": "false",  # which begins with 128 MB
        }
        file = self._place / "server.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        name = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        formats = self._java("kafka.tools.StorageTool", "format", "-t", name, "-c", str(file))
        try:
            assert formats.wait(START_TIMEOUT) == 0, self._said()
        finally:
            formats.kill()
        self._process = self._java("kafka.Kafka", str(file))
        try:
            eventually(self._answers, "the broker answers", START_TIMEOUT)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _java(self, *command: str) -> subprocess.Popen[bytes]:
        java = java_home() / "bin" / "java"
        with (self._place / "kafka.log").open("ab") as log:
            return subprocess.Popen(
                [java, *SMALL, "-cp", f"{PLACE}/*:{jars_of_spark()}/*", *command],
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def _said(self) -> str:
        return (self._place / "kafka.log").read_text()[-3000:]

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self._said()
        try:
            KafkaAdminClient(bootstrap_servers=self.at).close()
        except KafkaError:
            return False
        return True
