"""Patterns of principals and topics."""

from __future__ import annotations

from dataclasses import dataclass

from relay.core.trust.principals import ANONYMOUS

KINDS = ("spiffe://", "dns:", "subject:", "jwt:", "token:")
"""How the names of principals begin that have proved something."""


@dataclass(frozen=True, slots=True)
class Glob:
    """A pattern of names: `*` stands for any characters, `/` among them, or none; all else for itself."""

    text: str

    def matches(self, name: str) -> bool:
        """Whether a name is of the pattern, in time that grows with the product of both lengths at most."""
        first, *rest = self.text.split("*")
        if not rest:
            return name == first
        *middle, last = rest
        if len(name) < len(first) + len(last) or not (name.startswith(first) and name.endswith(last)):
            return False
        at, end = len(first), len(name) - len(last)
        # The first place where a part fits leaves the most room for those behind it, so there is no way back.
        for part in middle:
            if (found := name.find(part, at, end)) < 0:
                return False
            at = found + len(part)
        return True


def principal_glob(text: str) -> Glob:
    """A pattern of principals. Raises `ValueError` where it could let in others than it seems to."""
    if text in ("*", ANONYMOUS.name):
        return Glob(text)
    kind = next((each for each in KINDS if text.startswith(each)), None)
    if kind is None:
        kinds = ", ".join(KINDS)
        raise ValueError(f"begins with no kind of principal; begin it with {kinds}, or write anonymous or *")
    rest = text.removeprefix(kind)
    if kind == "spiffe://" and "*" in rest.partition("/")[0]:
        raise ValueError("has a * in its trust domain, or no path behind it; write the domain out, and a /")
    if kind == "jwt:" and "*" in rest.partition(":")[0]:
        raise ValueError("has a * in the name of its issuer; write that out, and a : behind it")
    if not rest:
        raise ValueError(f"is only a kind; write what follows {kind}, or {kind}* for all of it")
    return Glob(text)


def is_meant(glob: Glob, principal: str) -> bool:
    """Whether a pattern means a principal: `*` means all who have proved who they are, so that `anonymous` is
    allowed nothing that does not name it."""
    return glob.text == principal if principal == ANONYMOUS.name else glob.matches(principal)
