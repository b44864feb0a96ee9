"""Images and containers under podman, as a kubelet would run them, with a storage of the tests' own.

No registry is needed: the base that the Dockerfile names is a **stand-in**, a minimal Debian with its own
Python under the name `python:3.12-slim`. Tested is our Dockerfile and what it makes, and not that base.
"""

from __future__ import annotations

import json
import os
import shutil
import ssl
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.worlds.waiting import eventually

ROOT = Path(__file__).resolve().parents[2]
BASE = "docker.io/library/python:3.12-slim"
IMAGE = "localhost/relay:0.1.0"
PIPELINE = "localhost/relay-pipeline:0.1.0"
NEEDED = ("podman", "buildah", "runc", "mmdebstrap")
DEBIAN = ROOT / ".venv-kube" / "debian.tar"
"""The stand-in's files: made once, since that takes a minute."""

TRUSTED_BY_JAVA = Path("/etc/ssl/certs/java/cacerts")
"""Debian's, of the CAs that this machine trusts."""
PACKAGES = "python3,python3-pip,python3-venv,ca-certificates"
CONFIGURATION = """\
[containers]
default_ulimits = ["nofile=20000:20000", "nproc=4096:4096"]
[engine]
runtime = "runc"
"""

RESTRICTED = (
    *("--read-only", "--read-only-tmpfs=false"),
    *("--cap-drop=all", "--security-opt=no-new-privileges"),
    *("--pids-limit=-1", "--network=host"),
)
"""What the restricted profile and the chart ask for. (The default seccomp profile holds anyway.)"""


class Podman:
    """podman with a storage of its own in `place`."""

    def __init__(self, place: Path) -> None:
        self._place = place
        configuration = place / "containers.conf"
        configuration.write_text(CONFIGURATION, encoding="utf-8")
        self._env = {**os.environ, "CONTAINERS_CONF": str(configuration)}
        self._podman = ["podman", "--root", str(place / "root"), "--runroot", str(place / "run")]

    def run(self, *arguments: str | Path, check: bool = True, timeout: float = 1200) -> str:
        """Run a command of podman; its output, of both kinds. `check`: fails where it does."""
        done = subprocess.run(
            [*self._podman, *map(str, arguments)],
            env=self._env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=timeout,
            check=False,
        )
        assert not check or done.returncode == 0, f"podman {arguments[0]}: {done.stdout[-4000:]}"
        return done.stdout

    def make_base(self) -> None:
        """The stand-in, by the name that the Dockerfile asks for. It trusts the CAs of this machine."""
        if not DEBIAN.exists():
            fresh = DEBIAN.with_name("debian.part.tar")
            subprocess.run(
                ["mmdebstrap", "--quiet", "--variant=minbase", f"--include={PACKAGES}", "bookworm", fresh],
                check=True,
            )
            fresh.rename(DEBIAN)
        self.run("import", DEBIAN, "localhost/debian")
        context = self._place / "base"
        context.mkdir()
        found = ssl.get_default_verify_paths()
        authorities = Path(os.environ.get("PIP_CERT") or found.cafile or "/etc/ssl/certs/ca-certificates.crt")
        shutil.copy(authorities, context / "authorities.crt")
        lines = [
            "FROM localhost/debian",
            "COPY authorities.crt /etc/ssl/certs/ca-certificates.crt",
            "RUN ln -s python3 /usr/bin/python",
            "ENV PIP_CERT=/etc/ssl/certs/ca-certificates.crt",
        ]
        lines += [f"ENV {name}={os.environ[name]}" for name in ("PIP_INDEX_URL",) if name in os.environ]
        if TRUSTED_BY_JAVA.exists():  # for the jars that the build fetches
            shutil.copy(TRUSTED_BY_JAVA, context / "cacerts")
            lines += [
                f"COPY cacerts {TRUSTED_BY_JAVA}",
                f"ENV JAVA_TOOL_OPTIONS=-Djavax.net.ssl.trustStore={TRUSTED_BY_JAVA}",
            ]
        (context / "Containerfile").write_text("\n".join(lines) + "\n", encoding="utf-8")
        self.build(context, BASE)

    def build(self, context: Path, tag: str, *options: str) -> str:
        how = ("--pull=never", "--isolation=chroot", *options)
        # Spark is fetched, and built from its source.
        return self.run("build", *how, "--tag", tag, context, timeout=1500)

    def inspect(self, image: str) -> dict[str, Any]:
        (found,) = json.loads(self.run("image", "inspect", image))
        return dict(found)

    def close(self) -> None:
        self.run("rm", "--all", "--force", "--time", "0", check=False)
        self.run("system", "reset", "--force", check=False)
        shutil.rmtree(self._place, ignore_errors=True)


@dataclass(frozen=True)
class Container:
    """A container that was started."""

    podman: Podman
    name: str

    def logs(self) -> str:
        return self.podman.run("logs", self.name)

    def state(self) -> dict[str, Any]:
        (found,) = json.loads(self.podman.run("container", "inspect", self.name))
        return dict(found["State"])

    @property
    def running(self) -> bool:
        return bool(self.state()["Running"])

    def exec(self, *command: str) -> tuple[int, str]:
        """Run a command within, as an exec probe does; its code and what it said."""
        out = self.podman.run("exec", self.name, "/opt/relay/bin/python", "-c", _REPORT, *command)
        said, _, code = out.rstrip("\n").rpartition("\n")
        return int(code), said

    def term(self) -> None:
        """SIGTERM to its first process."""
        self.podman.run("kill", "--signal=TERM", self.name)

    def wait(self) -> int:
        """Its exit code."""
        eventually(lambda: not self.running, f"{self.name} ends: {self.logs()[-2000:]}")
        return int(self.state()["ExitCode"])


_REPORT = "import subprocess, sys; print(subprocess.run(sys.argv[1:]).returncode)"


@contextmanager
def started(
    podman: Podman,
    name: str,
    *,
    user: str,
    groups: Sequence[int] = (),
    env: Mapping[str, str] | None = None,
    mounts: Mapping[str, Path] | None = None,
    writable: Sequence[str] = (),
    command: Sequence[str] = (),
    args: Sequence[str] = (),
    image: str = IMAGE,
) -> Iterator[Container]:
    """A container of an image of ours under the restricted flags; `command` and `args` as in a manifest."""
    options = ["--detach", "--name", name, "--user", user, *RESTRICTED]
    options += [f"--group-add={group}" for group in groups]
    options += [f"--env={key}={value}" for key, value in (env or {}).items()]
    for inside, outside in (mounts or {}).items():
        options.append(f"--volume={outside}:{inside}:{'rw' if inside in writable else 'ro'}")
    if command:
        options.append(f"--entrypoint={json.dumps(list(command))}")
    podman.run("run", *options, image, *args)
    container = Container(podman, name)
    try:
        yield container
    except BaseException:
        print(f"--- {name}:\n{container.logs()[-4000:]}")
        raise
    finally:
        podman.run("rm", "--force", "--time", "0", name, check=False)
