"""Checks of single values and of values together. Errors are the ends of sentences."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Mapping
from itertools import permutations
from typing import Any

from relay.core import validate
from relay.core.dispatch import Dispatch
from relay.core.durability import FORMS, Durability
from relay.core.endpoints import addresses, redis_url
from relay.core.errors import InvalidField
from relay.core.partitions import MAX_PARTITIONS, is_count
from relay.core.policy import TopicPolicy


class Misfit(ValueError):
    """Two fields contradict each other. `field` is the path of one of them, from the level that was checked.
    It comes in parts if a topic's name is one, since that may contain dots."""

    def __init__(self, field: str | tuple[str, ...], problem: str) -> None:
        self.path = field if isinstance(field, tuple) else ()
        field = ".".join(field) if isinstance(field, tuple) else field
        super().__init__(f"{field}: {problem}")
        self.field = field
        self.problem = problem


_ANY_HOST = {"0.0.0.0", "::"}

_HOST_NAME = re.compile(r"[A-Za-z0-9_.-]+")

MAX_RELAY_NAME = 253
"""Characters, as many as a pod's name may have."""

MAX_SOCKET_PATH = 107
"""Bytes of a Unix socket's path, a limit of the operating system (108 with the closing zero)."""


def not_a_bool(value: Any) -> Any:
    """Refuse true and false, which Python takes for 1 and 0. Raises `ValueError`."""
    if isinstance(value, bool):
        raise ValueError(f"must be a number, got {str(value).lower()}")
    return value


def topic(value: str) -> str:
    """Check a topic's name. Raises `ValueError`."""
    return _checked(validate.topic, value, "the topic's name ")


def prefix(value: str) -> str:
    """Check the first part of a key or channel, under the rules for topics."""
    return _checked(validate.name, value, "")


def relay_name(value: str) -> str:
    """Check what a relay is called. Raises `ValueError`."""
    if value and not (len(value) <= MAX_RELAY_NAME and _HOST_NAME.fullmatch(value)):
        raise ValueError("must be up to 253 letters, digits, '_', '.' and '-', or empty for the host's name")
    return value


def _checked(check: Callable[[str, str], str], value: str, subject: str) -> str:
    try:
        return check("name", value)
    except InvalidField as error:
        raise ValueError(f"{subject}{error.problem}") from None


def distinct_prefixes(**prefixes: str) -> None:
    """Require prefixes by which no two topics can share a key `prefix:topic`, whatever their names. Raises
    `Misfit`."""
    for (name, one), (other_name, other) in permutations(prefixes.items(), 2):
        if one == other:
            raise Misfit(name, f"must differ from {other_name}, both are {one!r}")
        if other.startswith(f"{one}:"):
            raise Misfit(
                other_name,
                f"must not begin with {name} and a colon, {one + ':'!r}: two topics could meet in one key",
            )


def location(value: Any) -> Any:
    """Check a URL of Redis. Raises `ValueError`, whose message repeats no part of it: that could be the
    password."""
    if not isinstance(value, str):
        raise ValueError("must be a URL such as redis://127.0.0.1:6379/0")
    redis_url.parse(value)
    return value


def password(value: Any) -> Any:
    """Check a password: any text that does not end with a line end, which only a mistake puts there. Raises
    `ValueError`."""
    if not isinstance(value, str):
        raise ValueError("must be text; put it in quotes")
    if value.endswith(("\n", "\r")):
        raise ValueError("ends with a line end; make the Secret without one: printf instead of echo")
    return value


def credentials_fit(url: str, *, username: str, password: str, sentinel_password: str) -> None:
    """Refuse credentials beside a URL that has them. Raises `Misfit`."""
    where = redis_url.parse(url)
    if username and where.login.username:
        raise Misfit("username", "is in url already; give it in one place")
    if password and where.login.password:
        raise Misfit("password", "is in url already; give it in one place")
    if username and not password and not where.login.password:
        raise Misfit("username", "goes with a password; set password too")
    if sentinel_password and not where.master:
        raise Misfit("sentinel_password", "goes with redis+sentinel:// or rediss+sentinel:// only")
    if sentinel_password and where.sentinel_login.password:
        raise Misfit("sentinel_password", "is in url already; give it in one place")


def listen(value: str) -> str:
    """Check an address `host:port`."""
    addresses.split(value)
    return value


def listen_or_socket(value: str) -> str:
    """Check an address `host:port` or `unix:/path`. Raises `ValueError`."""
    if not value.startswith("unix:"):
        return listen(value)
    path = value.removeprefix("unix:")
    if not path.startswith("/"):
        raise ValueError(f"must name an absolute path, as in unix:/run/relay.sock, got {value!r}")
    if len(path.encode()) > MAX_SOCKET_PATH:
        raise ValueError(f"must name a path of at most {MAX_SOCKET_PATH} bytes, got {len(path.encode())}")
    return value


def listeners_differ(listeners: Mapping[str, str]) -> None:
    """Raises `Misfit` if two settings, given by their paths, ask for the same port of the same address."""
    taken: list[tuple[str, str, int]] = []
    for path, listen_on in listeners.items():
        if listen_on.startswith("unix:"):
            continue
        host, port = addresses.split(listen_on)
        for other, other_host, other_port in taken:
            if port and port == other_port and (host == other_host or {host, other_host} & _ANY_HOST):
                raise Misfit(path, f"must have another port than {other}, which listens on {port} too")
        taken.append((path, host, port))


def host_names(value: str) -> str:
    """Check host names with commas between them, without ports; there may be none. Raises `ValueError`."""
    for name in map(str.strip, value.split(",") if value.strip() else ()):
        if not _HOST_NAME.fullmatch(name) and not _is_address(name):
            raise ValueError(f"must be host names with commas between them, without ports, got {name!r}")
    return value


def trace_url(value: str) -> str:
    """Check the template of a trace's address. Raises `ValueError`."""
    if value and (not value.startswith(("http://", "https://")) or "{trace_id}" not in value):
        raise ValueError("must be an address that begins with https:// and has {trace_id} in it, or empty")
    return value


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def on_or_off(value: Any) -> Any:
    """Read a section for which `off` switches its `keep` off, and `on` switches it on."""
    word = value.lower() if isinstance(value, str) else value
    if word in (True, "on", "true", "yes"):
        return {"keep": True}
    return {"keep": False} if word in (False, "off", "false", "no") else value


def off(value: Any) -> Any:
    """Read a choice; YAML reads a bare off as false."""
    return "off" if value is False else value


def switch(value: Any) -> Any:
    """Read `on` and `off`, which YAML reads as true and false."""
    word = value.lower() if isinstance(value, str) else value
    if word in (True, "true", "yes"):
        return "on"
    return "off" if word in (False, "false", "no") else word


def target(value: str) -> str:
    """Check an address to dial, which may be empty. Raises `ValueError`."""
    if value and listen_or_socket(value).endswith(":0"):
        raise ValueError(f"must name a port to dial, got {value!r}")
    return value


def target_fits(mode: str, target: str) -> None:
    """Require a target with push, and none without it. Raises `Misfit`."""
    if mode == "push" and not target:
        raise Misfit("target", "must say whom to dial, as in 127.0.0.1:50051, since delivery.mode is push")
    if mode != "push" and target:
        raise Misfit("target", f"has no effect while delivery.mode is {mode}; set it to push")


def group(value: str) -> str:
    """Check the name of a group, which may be empty. A colon in it could lead to another topic's key. Raises
    `ValueError`."""
    if value and not re.fullmatch(r"[A-Za-z0-9._-]{1,64}", value):
        raise ValueError(f"must be 1 to 64 letters, digits, '.', '_' or '-', got {value!r}")
    return value


def dispatch_fits(dispatch: str, *, mode: str, group: str) -> None:
    """Require a group for a stream, and no push for a list, whose entries workers take. Raises `Misfit`."""
    if dispatch == "stream" and not group:
        raise Misfit("stream.group", "must name the application, as in billing, since dispatch is stream")
    if dispatch == "list" and mode == "push":
        raise Misfit("delivery.mode", "must be stream, since dispatch is list: workers take what is there")


def sealing_fits(sealing: bool, dispatch: str) -> None:
    """Refuse to seal what others than relays read. Raises `Misfit`."""
    if sealing and dispatch != "lease":
        raise Misfit(
            "sealing",
            f"must be false, since dispatch is {dispatch}, whose workers have no keys; or set it to lease",
        )


def durability(value: str) -> str:
    """Check a topic's durability. Raises `ValueError`."""
    try:
        return str(Durability.parse(value))
    except ValueError:
        raise ValueError(f"must be {FORMS}, got {value!r}") from None


def partitions(value: int) -> int:
    """Check the number of a topic's partitions. Raises `ValueError`."""
    if not is_count(value):
        raise ValueError(f"must be a power of two from 1 to {MAX_PARTITIONS}, got {value}")
    return value


def partitions_fit(policy: TopicPolicy) -> None:
    """Refuse several partitions where workers share one list or stream, and bounds that have no share for
    each partition. Raises `Misfit`."""
    if policy.partitions == 1:
        return
    if policy.dispatch is not Dispatch.LEASE:
        raise Misfit(
            "partitions",
            f"must be 1 while dispatch is {policy.dispatch.value}: its workers look in one place",
        )
    bounds = (
        ("max_waiting", policy.max_waiting),
        ("dead_letters.max_count", policy.dead_letters.max_count),
        ("journal_max_length", policy.journal_max_length),
    )
    for name, bound in bounds:
        if 0 < bound < policy.partitions:
            raise Misfit(name, f"must be at least partitions, which is {policy.partitions}, got {bound}")


DISPATCHED = ("stream", "list")
"""The sections of a topic that belong to the `dispatch` of the same name."""


def section_fits(field: tuple[str, ...], section: str, dispatch: str) -> None:
    """Refuse settings of a stream or a list that the topic does not have. Raises `Misfit`."""
    if dispatch != section:
        raise Misfit(
            field, f"has no effect while dispatch is {dispatch}; set it to {section}, or leave this out"
        )


def octal_mode(value: Any) -> Any:
    """Check octal digits as text: YAML reads a bare 0660 as the number 432, and a bare 660 as 660. Raises
    `ValueError`."""
    if not isinstance(value, str) or not re.fullmatch(r"0?[0-7]{3}", value):
        raise ValueError(f'must be three octal digits in quotes, such as "0660", got {value!r}')
    return value


def times_fit(policy: TopicPolicy) -> None:
    """Check that the times of one policy do not contradict each other. Raises `Misfit`."""
    if policy.polling_interval > policy.max_polling_interval:
        raise Misfit(
            "polling_interval",
            "must be at most max_polling_interval, "
            f"got {policy.polling_interval:g} over {policy.max_polling_interval:g} seconds",
        )
    if policy.renew and policy.lease_ttl > policy.delivery_timeout:
        raise Misfit(
            "stream.min_idle_time" if policy.dispatch is Dispatch.STREAM else "lease_ttl",
            "must be at most delivery_timeout while renew is on, "
            f"got {policy.lease_ttl:g} over {policy.delivery_timeout:g} seconds",
        )
