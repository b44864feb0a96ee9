"""Write docs/reference/settings.md from the settings themselves, or check that it is up to date.

python tools/settings_docs.py            write the page
python tools/settings_docs.py --check    exit 1, with a diff, if it has drifted
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from relay.settings.describe import ANY_TOPIC, Described, fields  # noqa: E402
from tools.drift import write_or_check  # noqa: E402

PAGE = ROOT / "docs" / "reference" / "settings.md"
HEAD = """\
# Settings

<!-- Written by tools/settings_docs.py: change relay/settings/tree.py instead. -->

`relay serve --config relay.yaml` reads a YAML file; `RELAY_CONFIG` may name it too. Every setting can be
given as an environment variable, with `__` between the levels. What is set there stands above the file, and
the file above the defaults. `relay config` prints the outcome, with passwords masked.

```yaml
redis:
  url: redis://cache:6379/0
defaults:
  lease_ttl: 60
topics:
  invoices:
    max_payload_bytes: 4096
```

A key that is not a setting is an error, in the file and in the environment, and the error names the setting
that was probably meant. A variable without `__` may be somebody else's, so it never keeps a relay from
starting: one that is near a setting, such as `RELAY_REDIS_URL`, has no effect, and the log and all commands
that read settings say so and name `RELAY_REDIS__URL`. The name of a level, such as `RELAY_REDIS`, has no
effect either, and they say that too. What Kubernetes puts into the pods beside a Service that is called
`relay` or `relay-api` (`RELAY_PORT`, `RELAY_API_SERVICE_HOST` and the like) is left alone without a word.

An entry of `topics` overrides `defaults` field by field; none is needed.
A topic's name keeps its case in a variable: `RELAY_TOPICS__invoices__LEASE_TTL=60`.

Times are numbers of seconds, sizes are numbers of bytes.
"""


def table(rows: list[Described]) -> str:
    lines = ["| setting | type | unit | default | bounds | variable | |", "|---|---|---|---|---|---|---|"]
    for row in rows:
        cells = (
            f"`{'.'.join(row.path)}`",
            row.type,
            row.unit,
            f"`{shown(row.default)}`",
            row.bounds,
            f"`{row.variable}`",
            row.description,
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def shown(default: object) -> str:
    return str(default).lower() if isinstance(default, bool) else str(default)


def page() -> str:
    """The whole of docs/reference/settings.md."""
    daemon = [row for row in fields() if row.path[0] not in ("defaults", "topics")]
    policy = [row for row in fields() if row.path[0] == "defaults"]
    same = ", ".join(f"`{'.'.join(row.path[2:])}`" for row in fields() if ANY_TOPIC in row.path)
    return (
        f"{HEAD}\n## The daemon\n\n{table(daemon)}\n\n## Topics\n\n{table(policy)}\n\n"
        f"`topics.{ANY_TOPIC}` takes the same fields ({same}), each as `RELAY_TOPICS__{ANY_TOPIC}__…`; "
        "what it leaves out comes from `defaults`.\n"
    )


def main() -> None:
    write_or_check(PAGE, page(), "what the settings say", "tools/settings_docs.py")


if __name__ == "__main__":
    main()
