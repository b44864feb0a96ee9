"""Templates, and the files that pages load. All of them travel in the package."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import jinja2

from relay import __version__
from relay.console import shown

HERE = Path(__file__).resolve().parent

KINDS = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}


@dataclass(frozen=True, slots=True)
class Asset:
    """A file that pages load."""

    content: bytes
    kind: str


@cache
def assets() -> Mapping[str, Asset]:
    """All of them, by their names in addresses: read once, as a relay that nobody looks at reads none."""
    return {
        file.relative_to(HERE / "assets").as_posix(): Asset(file.read_bytes(), KINDS[file.suffix])
        for file in sorted((HERE / "assets").rglob("*"))
        if file.suffix in KINDS
    }


@cache
def _versions() -> Mapping[str, str]:
    return {name: hashlib.sha256(asset.content).hexdigest()[:12] for name, asset in assets().items()}


def asset_version(name: str) -> str:
    """A word that changes with an asset."""
    return _versions()[name]


def asset_address(name: str) -> str:
    """The address of an asset, with its version, so that browsers may keep it."""
    return f"/console/assets/{name}?v={asset_version(name)}"


@cache
def _templates() -> jinja2.Environment:
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters.update(shown.FILTERS)
    made.globals.update(
        address=shown.address,
        asset=asset_address,
        version=__version__,
        width=shown.WIDTH,
        height=shown.HEIGHT,
    )
    return made


def render(template: str, about: Mapping[str, Any]) -> str:
    """Fill a template."""
    return _templates().get_template(template).render(about)
