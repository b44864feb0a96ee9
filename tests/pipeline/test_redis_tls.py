"""A job behind TLS and under the user of `relay doctor --acl`, by the variables that the docs name."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from typer.testing import CliRunner

from relay.cli.commands import app
from tests.missing import need
from tests.servers import SYSTEM, free_port, start_server
from tests.tls import Authority

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

PASSWORD = "p@ss/w:rd%41#é"
"""With everything in it that a URL would have to encode."""


def test_a_load_by_tls_under_its_own_user(spark: SparkSession, tmp_path: Path) -> None:
    """Its workers, too, get certificate, user and password; without the password nothing is loaded, and none
    of it is printed."""
    need("openssl")
    need("redis-server")
    authority = Authority(tmp_path)
    own, port = authority.issue("server"), free_port()
    files = {"cert": own.certificate, "key": own.key, "ca-cert": authority.ca.certificate}
    config = {f"tls-{name}-file": str(path) for name, path in files.items()}
    with start_server(SYSTEM, config={**config, "tls-port": str(port), "tls-auth-clients": "no"}) as server:
        environment = {
            "RELAY_REDIS__URL": f"rediss://127.0.0.1:{port}/0?ssl_ca_certs={authority.ca.certificate}",
            "RELAY_REDIS__USERNAME": "relay-pipeline",
            "RELAY_REDIS__PASSWORD": PASSWORD,
        }
        printed = CliRunner().invoke(app, ["doctor", "--acl"], env=environment)
        assert printed.exit_code == 0, printed.output
        (line,) = [each for each in printed.stdout.splitlines() if " relay-pipeline " in each]
        client = server.client()
        client.execute_command(*shlex.split(line.replace("a-long-password", PASSWORD)))
        rows = tmp_path / "rows.csv"
        rows.write_text("timer_id,due_time\na,2099-01-01T00:00:00Z\nb,2099-01-01T00:00:01Z\n")
        asked = ["pipeline", "schedule", str(rows), "--topic", "orders"]
        wrong = CliRunner().invoke(app, asked, env={**environment, "RELAY_REDIS__PASSWORD": "other"})
        assert wrong.exit_code != 0
        assert client.exists("timers_timeline:orders") == 0
        done = CliRunner().invoke(app, asked, env=environment)
        assert done.exit_code == 0, done.output
        assert client.zcard("timers_timeline:orders") == 2
        assert PASSWORD not in done.output + wrong.output
