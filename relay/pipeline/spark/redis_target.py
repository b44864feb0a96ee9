"""The Redis that a job works on, and its topics' settings, as options for the workers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from relay.core import validate
from relay.core.durability import STORED, Durability
from relay.core.endpoints.redis_url import parse
from relay.core.errors import InvalidField
from relay.core.instants import LATEST, SECOND, micros
from relay.core.journal import Journals
from relay.core.policy import TopicPolicy
from relay.core.timers import REPLACE, OnConflict
from relay.store.bulk.store import BulkStore
from relay.store.codec.contents import Contents
from relay.store.keys import KeyNames
from relay.store.server.blocking import TIMEOUT, BlockingServer

if TYPE_CHECKING:  # only a driver reads settings: a worker gets options, and starts in two thirds of the time
    from relay.settings import Settings

_PREFIXES = tuple(each.name for each in fields(KeyNames) if each.name != "hash_tags")


NO_URL = (
    "is missing, and RELAY_REDIS__URL was not set when Spark started the process that asks for it; give the "
    "option, or set the variable before the session starts"
)


@dataclass(frozen=True, slots=True)
class TopicRules:
    """A topic's settings for timers that are written to it."""

    journal_keeps: int = 0
    max_payload_bytes: int = TopicPolicy().max_payload_bytes
    partitions: int = 1
    """How many a new topic is to have."""
    durability: str = str(STORED)
    sealing: bool = False

    @classmethod
    def of(cls, policy: TopicPolicy) -> Self:
        """Take from a policy what is needed here."""
        return cls(
            policy.journal_keeps,
            policy.max_payload_bytes,
            policy.partitions,
            str(policy.durability),
            policy.sealing,
        )


@dataclass(frozen=True, slots=True)
class Target:
    """A Redis, the names of its keys, and the topics' rules. The URL is a secret and never shown. What is
    written has `durability` at least, once the store that `open` gives is left. `keyring` is the path of the
    keyring's file."""

    url: str = field(repr=False)
    keys: KeyNames = field(default_factory=KeyNames)
    timeout: float = TIMEOUT
    default: TopicRules = field(default_factory=TopicRules)
    own: Mapping[str, TopicRules] = field(default_factory=dict)
    closed: bool = False
    durability: Durability = STORED
    keyring: str = ""

    @classmethod
    def of(cls, settings: Settings, durability: Durability = STORED) -> Self:
        """Read the target from the daemon's settings."""
        from relay.settings.keys import key_names

        redis, policies = settings.redis, settings.policies()
        return cls(
            redis.location,
            key_names(redis),
            max(redis.command_timeout, TIMEOUT),
            TopicRules.of(policies.default),
            {topic: TopicRules.of(policy) for topic, policy in policies.own.items()},
            policies.closed,
            durability,
            settings.sealing.keyring,
        )

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> Self:
        """Read the target from a data source's options. Without `redis_url` the settings in the environment
        of this process count, which Spark has started. Raises `InvalidField`, and the errors of
        `relay.settings.load`."""
        url = options.get("redis_url")
        if url is None:
            from relay.settings import load

            settings = load()
            if "url" not in settings.redis.model_fields_set:
                raise InvalidField("redis_url", NO_URL)
            found = cls.of(settings, durability(options))
            return replace(found, keyring=options.get("keyring", found.keyring))
        try:
            parse(url)
        except ValueError as problem:
            raise InvalidField("redis_url", str(problem)) from None
        names: dict[str, Any] = {
            name: options[f"{name}_key"] for name in _PREFIXES if f"{name}_key" in options
        }
        names["hash_tags"] = flag(options, "hash_tags", default=False)
        rules = json.loads(options.get("rules", "{}"))
        default = TopicRules(**rules.get("default", {}))
        if "max_payload_bytes" in options:
            default = replace(default, max_payload_bytes=whole(options, "max_payload_bytes"))
        own = {topic: TopicRules(**each) for topic, each in rules.get("own", {}).items()}
        timeout = float(options.get("timeout", TIMEOUT))
        closed, keyring = rules.get("closed", False), options.get("keyring", "")
        return cls(url, KeyNames(**names), timeout, default, own, closed, durability(options), keyring)

    def options(self) -> dict[str, str]:
        """Return options for `from_options`. They hold the URL: Spark redacts options whose name has
        `url`."""
        rules = {
            "default": asdict(self.default),
            "own": {topic: asdict(each) for topic, each in self.own.items()},
            "closed": self.closed,
        }
        return {
            "redis_url": self.url,
            "timeout": str(self.timeout),
            "hash_tags": str(self.keys.hash_tags).lower(),
            "rules": json.dumps(rules),
            "durability": str(self.durability),
            "keyring": self.keyring,
            **{f"{name}_key": getattr(self.keys, name) for name in _PREFIXES},
        }

    def rules(self, topic: str) -> TopicRules:
        """Return the topic's rules."""
        return self.own.get(topic, self.default)

    def admit(self, topic: str) -> str:
        """Return the topic if it is valid and admitted. Raises `InvalidField`."""
        if self.closed and topic not in self.own:
            raise InvalidField("topic", f"{topic!r} is not configured, and topics_closed is set")
        return validate.topic("topic", topic)

    @property
    def seals_any(self) -> bool:
        """Whether any topic is known to be sealed, or there is a keyring for such."""
        return bool(self.keyring) or any(each.sealing for each in (self.default, *self.own.values()))

    def contents(self) -> Contents | None:
        """Read the keyring; None if there is none. Raises `InvalidField`."""
        if not self.keyring:
            return None
        from relay.trust.files import BadFile
        from relay.trust.keyring import FileKeyring

        try:
            return Contents(FileKeyring(Path(self.keyring)))
        except BadFile as problem:
            raise InvalidField("sealing.keyring", str(problem).removeprefix("sealing.keyring: ")) from None

    def open(self) -> BulkStore:
        """Open a store with connections of the caller's own."""
        return BulkStore(self.server(), lambda topic: self.rules(topic).partitions)

    def server(self) -> BlockingServer:
        """Make connections of the caller's own."""
        journals = Journals(lambda topic: self.rules(topic).journal_keeps)
        return BlockingServer(
            self.url, self.keys, timeout=self.timeout, journals=journals, durability=self._level
        )

    def _level(self, topic: str) -> Durability:
        return Durability.parse(self.rules(topic).durability).joined(self.durability)


def names_of(option: str, text: str) -> tuple[str, ...]:
    """Read names with commas between them, or a JSON array, for names with commas. Raises `InvalidField`."""
    if not text.startswith("["):
        return tuple(filter(None, (name.strip() for name in text.split(","))))
    try:
        names = json.loads(text)
    except ValueError:
        names = None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise InvalidField(option, "is not a JSON array of names")
    return tuple(names)


def flag(options: Mapping[str, str], name: str, *, default: bool) -> bool:
    """Read an option that is true or false. Raises `InvalidField`."""
    text = str(options.get(name, default)).lower()
    if text not in ("true", "false"):
        raise InvalidField(name, f"is {text!r}; give true or false")
    return text == "true"


def whole(options: Mapping[str, str], name: str, default: int = 0, *, least: int = 0) -> int:
    """Read an option that is a whole number. Raises `InvalidField`."""
    text = options.get(name, str(default))
    if not text.isascii() or not text.isdigit() or int(text) < least:
        raise InvalidField(name, f"is {text!r}; give a whole number, {least} or more")
    return int(text)


def rate(options: Mapping[str, str], name: str = "max_rate") -> float | None:
    """Read an option that is a number of timers a second; None if it is absent. Raises `InvalidField`."""
    if name not in options:
        return None
    try:
        value = float(options[name])
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise InvalidField(name, f"is {options[name]!r}; give a number of timers a second, more than 0")
    return value


def on_conflict(options: Mapping[str, str], name: str = "on_conflict") -> OnConflict:
    """Read which timer stands where one exists; by default the new one. Raises `InvalidField`."""
    try:
        return OnConflict(options.get(name, REPLACE.value).lower())
    except ValueError:
        known = " or ".join(each.value for each in OnConflict)
        raise InvalidField(name, f"is {options[name]!r}; give {known}") from None


def durability(options: Mapping[str, str], name: str = "durability") -> Durability:
    """Read what an OK must mean; without the option, what the topics say. Raises `InvalidField`."""
    try:
        return Durability.parse(options.get(name, str(STORED)))
    except ValueError as problem:
        raise InvalidField(name, str(problem)) from None


def spread(options: Mapping[str, str], name: str = "spread") -> int:
    """Read a number of seconds over which timers are spread; return microseconds. Raises `InvalidField`."""
    try:
        value = float(options.get(name, "0"))
    except ValueError:
        value = -1.0
    if not 0 <= value <= LATEST / SECOND:
        raise InvalidField(name, f"is {options[name]!r}; give a number of seconds, 0 or more")
    return micros(value)
