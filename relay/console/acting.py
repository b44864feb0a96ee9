"""Actions: what one will touch is shown before, and what it did after."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from relay.console.requests import Shown

Fact = tuple[str, str | Markup]
"""A label, and what stands beside it."""


@dataclass(frozen=True, slots=True)
class FormField:
    """A field that people fill in before they act. `kind` is `text`, `number`, or `lines` for a text of many
    lines."""

    name: str
    label: str
    hint: str = ""
    value: str = ""
    kind: str = "text"
    required: bool = False


NOTE = FormField("note", "Note", "Why, for the action log; it may stay empty.")


@dataclass(frozen=True, slots=True)
class Asking:
    """The page before an action. `hidden` are the parameters of the action; `button` says what it does. One
    that can't be undone is `final`. `back` is the page that it is about."""

    title: str
    path: str
    button: str
    hidden: Mapping[str, str]
    facts: Sequence[Fact]
    back: str
    topic: str
    fields: Sequence[FormField] = (NOTE,)
    explanation: str = ""
    final: bool = False

    def page(self) -> Shown:
        """The page."""
        return Shown("confirm.html", {"asking": self, "topic": self.topic})


@dataclass(frozen=True, slots=True)
class ActionDone:
    """The page after an action. `again` has the parameters of one that has not come to its end."""

    title: str
    facts: Sequence[Fact]
    back: str
    topic: str
    path: str = ""
    again: Mapping[str, str] | None = None

    def page(self) -> Shown:
        """The page."""
        return Shown("done.html", {"done": self, "topic": self.topic})
