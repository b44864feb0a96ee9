"""The long form: atheris drives one parser by what its code has been seen to do.

    make fuzz FUZZ=cron                 10⁶ inputs, from where the last run stopped
    make fuzz FUZZ='cron -runs=1000'    libFuzzer's options follow the name

The corpus grows in build/fuzz/NAME, so a run goes on where the last one was stopped. An input that breaks a
parser is written to build/fuzz/NAME.crash-…, and `python -m tests.hostile.fuzz NAME FILE` repeats it.
"""

from __future__ import annotations

import sys
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["relay"]):
    from tests.hostile.targets import TARGETS

RUNS = 1_000_000
SLOWEST = 10
"""Seconds after which libFuzzer calls an input slow, and the run a failure."""


def _quoted(word: bytes) -> str:
    """A line of libFuzzer's dictionaries."""
    return '"' + "".join(f"\\x{byte:02x}" for byte in word) + '"\n'


def main(name: str, *options: str) -> None:
    """Fuzz the target of this name."""
    target = TARGETS[name]
    corpus = Path("build/fuzz") / name
    corpus.mkdir(parents=True, exist_ok=True)
    for number, valid in enumerate(target.valid):
        (corpus / f"valid-{number}").write_bytes(valid)
    words = corpus.with_suffix(".dict")
    words.write_text("".join(_quoted(word[:60]) for word in target.words if word), encoding="ascii")
    known = (
        f"-runs={RUNS}",
        "-max_len=4096",
        f"-timeout={SLOWEST}",
        f"-dict={words}",
        f"-artifact_prefix={corpus}.",
    )
    files = [option for option in options if not option.startswith("-")]
    atheris.Setup([sys.argv[0], *known, *options, *([] if files else [str(corpus)])], target.meet)
    atheris.Fuzz()


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] not in TARGETS:
        sys.exit(f"usage: make fuzz FUZZ=NAME, where NAME is one of {', '.join(TARGETS)}")
    main(*sys.argv[1:])
