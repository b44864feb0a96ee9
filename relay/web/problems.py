"""Errors as problem details (RFC 9457)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

from relay.api.errors import INTERNAL, KINDS, kind, retry_after
from relay.core.errors import InvalidField, ServiceError, Unauthenticated, shortened
from relay.web import forms

MEDIA_TYPE = "application/problem+json"
TYPE = "urn:relay:problem:"
"""The beginning of the `type` of every problem."""

REFUSALS = (
    *("not-json", "host-not-allowed", "no-such-path", "method-not-allowed", "too-slow", "body-too-large"),
    *("content-type", "condition-failed", "draining", "bad-timeout"),
    *("not-http", "header-too-large", "too-many-connections"),
)
"""The names of problems that are not errors of the relay."""

NAMES = {TYPE + name for name in (INTERNAL.name, *(each.name for each in KINDS.values()), *REFUSALS)}
"""All values of `type`."""


class Refused(Exception):
    """A request that is wrong as HTTP, whatever it asks for."""

    def __init__(self, status: int, name: str, title: str, detail: str, **headers: str) -> None:
        super().__init__(shortened(detail))
        self.status = status
        self.name = name
        self.title = title
        self.headers = {key.replace("_", "-"): value for key, value in headers.items()}


def of_error(failure: ServiceError, instance: str, given: Mapping[str, str]) -> Response:
    """Return the answer for an error of the relay. `given` has the other names by which fields were given."""
    what = kind(failure)
    detail = str(failure) if what is not INTERNAL else "the relay's log says more"
    more: dict[str, Any] = {}
    if isinstance(failure, InvalidField):
        field = given.get(failure.field, failure.field)
        detail, more = f"{field}: {failure.problem}", {"field": field}
    pause = retry_after(failure)
    headers = {} if pause is None else {"retry-after": str(math.ceil(pause))}  # whole seconds, says HTTP
    if isinstance(failure, Unauthenticated):
        headers["www-authenticate"] = "Bearer"
    return _answer(what.status, what.name, what.title, detail, instance, headers, more)


def of_refusal(refused: Refused, instance: str) -> Response:
    """Return the answer for a request that is wrong as HTTP. `instance` is empty if the path is unknown."""
    return _answer(refused.status, refused.name, refused.title, str(refused), instance, refused.headers, {})


def not_held(instance: str, result: str, answer: Mapping[str, Any]) -> Response:
    """Return the answer for a condition that did not hold, with the result of the call."""
    detail = f"nothing was changed, since the condition does not hold: {result}"
    name, title = "condition-failed", "The timer does not meet the condition"
    return _answer(412, name, title, detail, instance, {}, {"answer": answer})


def _answer(
    status: int,
    name: str,
    title: str,
    detail: str,
    instance: str,
    headers: Mapping[str, str],
    more: Mapping[str, Any],
) -> Response:
    problem = {"type": TYPE + name, "title": title, "status": status, "detail": detail}
    where = {"instance": instance} if instance else {}
    return Response(forms.dump({**problem, **where, **more}), status, {"content-type": MEDIA_TYPE, **headers})
