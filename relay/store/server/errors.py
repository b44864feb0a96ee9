"""redis-py's errors, and the server's words, as Relay's own: see `relay.core.errors`."""

from __future__ import annotations

import re
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from redis.exceptions import (
    AuthenticationError,
    BusyLoadingError,
    ClusterDownError,
    MovedError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
    TryAgainError,
)
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from relay.core.errors import (
    GivenUp,
    InvalidField,
    NotOffered,
    OtherLayout,
    StoreFull,
    StoreRefused,
    StoreUnavailable,
    WrongKeyType,
)


class NotMaster(RedisConnectionError):
    """The server is a replica, and Relay needs its master."""


class CantGive(RedisError):
    """The server can't give a durability."""


class CantGiveNow(RedisError):
    """The server can't give a durability, and servers of the same data could before."""


class Leaving(StoreUnavailable):
    """A timer is on its way between two partitions; try again."""


class PauseUnknown(StoreUnavailable):
    """A partition has not been told yet whether its topic is paused; try again."""


# States that pass. redis-py cuts their words off the message; MasterDownError is a ClusterDownError.
_PASSING = (AuthenticationError, BusyLoadingError, ClusterDownError, ReadOnlyError, TryAgainError)

# Redis 6.2 wraps a script's errors in words of its own.
_PASSING_WORDS = re.compile(r"(?:^|\s-?|-)(?:READONLY|NOREPLICAS|MISCONF)\b")


@contextmanager
def translated_errors() -> Iterator[None]:
    """Turn redis-py's errors into Relay's within the block. Raises `StoreUnavailable`, `StoreFull`,
    `StoreRefused` or another `StoreError`."""
    try:
        yield
    except OutOfMemoryError as failure:
        raise StoreFull(words(failure)) from failure
    except _PASSING as failure:
        raise StoreUnavailable(words(failure)) from failure
    except (RedisConnectionError, RedisTimeoutError, OSError) as failure:
        raise StoreUnavailable(words(failure)) from failure
    except MovedError as failure:
        raise StoreRefused(
            "another node of this Cluster has the topic's keys: redis.url has to begin with redis+cluster://"
        ) from failure
    except ResponseError as failure:
        raise _refusal(str(failure)) from failure
    except CantGive as failure:
        raise NotOffered(str(failure)) from failure
    except RedisError as failure:
        raise StoreRefused(words(failure)) from failure


def says_readonly(failure: BaseException | None) -> bool:
    """Whether a server refused to write because it is a replica."""
    return isinstance(failure, ReadOnlyError) or "READONLY" in str(failure)


_OURS: dict[str, Callable[[], Exception]] = {
    "LEAVING": Leaving,
    "PAUSEUNKNOWN": PauseUnknown,
    "GIVENUP": GivenUp,
    "OUTOFRANGE": lambda: InvalidField("delay", "ends after the year 9999; give a shorter one"),
    "SWEPT": lambda: InvalidField(
        "partitions",
        "can't be changed while a sweep of the cold store is under way, or was not finished: let it end, "
        "or run it again",
    ),
}
"""What our scripts say by a word alone."""


def _refusal(text: str) -> Exception:
    word, _, rest = text.partition(" ")
    if word in ("WRONGKEYTYPE", "WRONGTYPE"):  # the latter is Redis' own, of commands outside scripts
        return WrongKeyType(f"{rest}; move it away or set another key prefix")
    if word == "LAYOUT":
        return OtherLayout(rest)
    if word in _OURS:
        return _OURS[word]()
    if word in ("OOM", "-OOM") or "OOM command not allowed" in text:
        return StoreFull(text)
    if word == "BUSY" or _PASSING_WORDS.search(text):
        return StoreUnavailable(text)
    if "hash to the same slot" in text:
        return StoreRefused(f"{text}; set redis.hash_tags to true")
    return StoreRefused(text)


def words(failure: BaseException) -> str:
    """What went wrong; for TLS also what to do about it."""
    return _about_tls(failure) or str(failure) or type(failure).__name__


# By what OpenSSL says. The first that fits stands, so the special ones come first.
_TLS_ADVICE = {
    "certificate has expired": "the server's certificate has expired: renew it, and restart the server",
    "not yet valid": "the server's certificate is not valid yet: compare the clocks",
    "mismatch": "the server's certificate is for another host: name in redis.url one that it lists",
    "does not include key usage": "the CA's certificate doesn't say what it is for, as Python 3.13 wants it "
    "to: renew it with keyUsage=critical,keyCertSign,cRLSign",
    "missing authority key identifier": "the server's certificate doesn't name its CA's key, as Python "
    "3.13 wants it to: renew it with authorityKeyIdentifier=keyid",
    "certificate verify failed": "no CA that is trusted here has signed the server's certificate: name that "
    "CA's file in redis.url, with ssl_ca_certs",
    "certificate_required": "the server wants a client certificate: name one in redis.url, with ssl_certfile "
    "and ssl_keyfile",
    "unknown_ca": "the server does not trust the client certificate: name in redis.url, with ssl_certfile, "
    "one that its own CA has signed",
    "certificate_expired": "the client certificate that redis.url names has expired: renew it",
    "wrong_version_number": "the server does not speak TLS on this port: name its TLS port in redis.url",
    "record_layer_failure": "the server does not speak TLS on this port: name its TLS port in redis.url",
}


def _about_tls(failure: BaseException) -> str:
    for cause in _chain(failure):
        text = str(cause)
        if isinstance(cause, ssl.SSLError) or "[SSL" in text:
            advice = next((advice for sign, advice in _TLS_ADVICE.items() if sign in text.lower()), "")
            return f"{advice} ({text})" if advice else ""
    return ""


def _chain(failure: BaseException | None) -> Iterator[BaseException]:
    while failure is not None:
        yield failure
        failure = failure.__cause__ or failure.__context__
