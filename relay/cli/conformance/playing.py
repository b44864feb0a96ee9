"""Plays the scenes that were asked for, and prints the verdicts."""

from __future__ import annotations

import asyncio
import shlex
from collections import Counter
from collections.abc import Sequence

import typer

from relay.cli.terminal import output
from relay.cli.terminal.exits import BAD_INPUT, FAILURE, fail
from relay.conformance.judging import Grade, SceneVerdict, judge
from relay.conformance.scene import Scene
from relay.conformance.scenes import SCENES
from relay.conformance.under_test import process


def play(client: str, names: Sequence[str], patience: float, as_json: bool) -> None:
    """Play them, and exit with 1 if one failed."""
    try:
        command = shlex.split(client)
    except ValueError as error:
        fail(f"--client: {error}", BAD_INPUT)
    if not command:
        fail("--client: is empty; give the command that starts the client", BAD_INPUT)
    if asyncio.run(_play(command, _chosen(names), patience, as_json)):
        raise typer.Exit(FAILURE)


def _chosen(names: Sequence[str]) -> Sequence[Scene]:
    known = {each.name: each for each in SCENES}
    for name in names:
        if name not in known:
            fail(f"--scene: there is no scene {output.safe(name)!r}; they are {', '.join(known)}", BAD_INPUT)
    return [known[name] for name in names] or SCENES


async def _play(command: Sequence[str], scenes: Sequence[Scene], patience: float, as_json: bool) -> int:
    """Play the scenes, print each verdict as it comes, and return the number of failures."""
    counts: Counter[Grade] = Counter()
    async for verdict in judge(process(command), scenes, patience):
        counts[verdict.grade] += 1
        _print(verdict, as_json)
    if not as_json:
        told = ", ".join(f"{counts[each]} {each}" for each in Grade)
        typer.echo(f"{len(scenes)} scenes: {told}")
    return counts[Grade.FAILED]


def _print(verdict: SceneVerdict, as_json: bool) -> None:
    scene = verdict.scene
    if as_json:
        output.document(
            {
                "scene": scene.name,
                "verdict": verdict.grade.value,
                "rule": scene.rule,
                "section": verdict.section,
                "found": verdict.found,
                "seconds": round(verdict.seconds, 3),
            }
        )
        return
    typer.echo(f"{verdict.grade:8}  {scene.name:19} {verdict.seconds:5.1f} s")
    if verdict.grade is Grade.FAILED:
        typer.echo(f"          the rule: {scene.rule}")
        typer.echo(f"          found: {output.safe(verdict.found)}")
        typer.echo(f"          see {verdict.section}")
