"""The licences of what Relay installs, as the distributions themselves say."""

from __future__ import annotations

import re
from importlib.metadata import Distribution, distribution, distributions
from typing import Any

import pytest
from packaging.requirements import Requirement

pytestmark = pytest.mark.checkout

ALLOWED = {
    *(
        "Apache-2.0",
        "MIT",
        "MIT-0",
        "MIT-CMU",
        "BSD-2-Clause",
        "BSD-3-Clause",
        "0BSD",
        "ISC",
        "PSF-2.0",
        "Zlib",
        "CC0-1.0",
    ),
    "MPL-2.0",  # of files: whoever changes one of those publishes that file
}
"""By SPDX's names. A licence that asks more of who passes Relay on is not here."""

BESIDE = ("psycopg", "psycopg-binary")
"""The driver of the extra `outbox`, under the LGPL: only the image `outbox` has it, and its label says so."""

OLD_NAMES = {
    "Apache Software License": "Apache-2.0",
    "Apache 2.0": "Apache-2.0",
    "MIT License": "MIT",
    "MIT style": "MIT",
    "BSD License": "BSD-3-Clause",
    "BSD 2-Clause License": "BSD-2-Clause",
    "3-Clause BSD License": "BSD-3-Clause",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "ISC License (ISCL)": "ISC",
    "Python Software Foundation License": "PSF-2.0",
}
"""What distributions say that have no SPDX expression."""

NO_LICENCES = {"DFSG approved", "OSI Approved"}
"""Classifiers that name none."""


def licences(found: Distribution) -> set[str]:
    """Those that a distribution names: its expression, its classifiers, or the line `License`."""
    said: Any = found.metadata
    if expression := said.get("License-Expression"):
        return set(re.findall(r"[\w.-]+", expression)) - {"AND", "OR", "WITH"}
    classifiers = [each for each in said.get_all("Classifier") or [] if each.startswith("License ::")]
    named = {each.rpartition(" :: ")[2] for each in classifiers} - NO_LICENCES
    return {OLD_NAMES.get(name, name) for name in named or {(said.get("License") or "").split("\n")[0]}}


def closure(requirement: str) -> dict[str, Distribution]:
    """All distributions that a requirement brings, by name, itself among them."""
    wanted, found = [Requirement(requirement)], dict[str, Distribution]()
    seen = set[tuple[str, str]]()
    while wanted:
        each = wanted.pop()
        found[each.name] = distribution(each.name)
        for extra in ("", *each.extras):
            if (each.name, extra) not in seen:
                seen.add((each.name, extra))
                more = map(Requirement, found[each.name].requires or ())
                wanted += [one for one in more if one.marker is None or one.marker.evaluate({"extra": extra})]
    return found


@pytest.mark.parametrize("extra", ["daemon", "dev"])
def test_what_is_installed_beside_relay_may_be_passed_on(extra: str) -> None:
    """The image has the closure of `daemon`."""
    found = closure(f"relay-timers[{extra}]")
    assert len(found) > 20
    wrong = {name: named for name, each in found.items() if not (named := licences(each)) <= ALLOWED}
    assert wrong == {}


def test_so_may_be_what_only_the_suite_uses() -> None:
    wrong = {each.name: named for each in distributions() if not (named := licences(each)) <= ALLOWED}
    assert wrong == {name: {"LGPL-3.0-only"} for name in BESIDE}


def test_a_licence_that_is_not_allowed_is_seen(tmp_path_factory: pytest.TempPathFactory) -> None:
    """By each of the three ways in which a distribution may say it."""
    for line in (
        "License-Expression: GPL-3.0-only",
        "Classifier: License :: OSI Approved :: GNU GPL",
        "License: X",
    ):
        folder = tmp_path_factory.mktemp("odd") / "odd-1.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.4\nName: odd\nVersion: 1\n{line}\n", "utf-8")
        assert not licences(Distribution.at(folder)) <= ALLOWED
