"""Where Redis is: the forms of `redis.url`, parsed. Errors never repeat any part of a URL.

    redis://[user:password@]host[:6379][/db][?option=value&…]
    rediss://…                                            the same over TLS
    unix://[user:password@]/path/of/the.sock[?db=1]
    redis+sentinel://[user:password@]host[:26379],host,…/master[/db][?…]
    rediss+sentinel://…                                   TLS, to the Sentinels too
    redis+cluster://[user:password@]host[:6379],host,…[?…]  some nodes of a Cluster
    rediss+cluster://…                                    TLS

The credentials before the @ are for Redis. Those for Sentinels are the options `sentinel_username` and
`sentinel_password`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from urllib.parse import quote, unquote, urlsplit

from relay.core.endpoints.addresses import split

REDIS_PORT, SENTINEL_PORT = 6379, 26379

Address = tuple[str, int]
"""A host, without brackets, and a port."""

TLS_OPTIONS = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile", "ssl_cert_reqs", "ssl_check_hostname")
SENTINEL_OPTIONS = ("sentinel_username", "sentinel_password")
CLUSTER_OPTIONS = ("addresses",)
URL_OPTIONS = ("db", *TLS_OPTIONS, *SENTINEL_OPTIONS, *CLUSTER_OPTIONS)

SCHEMES = (
    "redis",
    "rediss",
    "unix",
    "redis+sentinel",
    "rediss+sentinel",
    "redis+cluster",
    "rediss+cluster",
)
_TRUTH = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}
_HOST = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+(?:%[^\]]+)?\]|[^\[\]:]*)(?::(?P<port>[0-9]{0,9}))?")


@dataclass(frozen=True, slots=True)
class Login:
    """A user and a password; either may be None."""

    username: str | None = None
    password: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Tls:
    """How the server is verified, and the certificate that we present; paths of PEM files or None."""

    ca_certs: str | None = None
    certfile: str | None = None
    keyfile: str | None = None
    cert_reqs: str = "required"
    check_hostname: bool = True


@dataclass(frozen=True, slots=True)
class RedisLocation:  # see 0020
    """One server: `hosts` has it, or `path` names its socket. With `master` they are Sentinels, with
    `cluster` some of a Cluster's nodes.

    `addresses`: where to reach a node, in the place of the address by which the Cluster calls it.
    """

    hosts: tuple[Address, ...] = ()
    path: str = ""
    master: str = ""
    db: int = 0
    login: Login = Login()
    sentinel_login: Login = Login()
    tls: Tls | None = None
    cluster: bool = False
    addresses: Mapping[Address, Address] = field(default_factory=dict)


def parse(text: str) -> RedisLocation:
    """Parse a URL. Raises `ValueError`, whose message is the end of a sentence about the URL."""
    scheme, separator, _ = text.partition("://")
    if not separator or scheme.lower() not in SCHEMES:
        raise ValueError(f"must begin with {', '.join(f'{s}://' for s in SCHEMES[:-1])} or {SCHEMES[-1]}://")
    scheme = scheme.lower()
    if any(char.isspace() for char in text):
        raise ValueError("contains white space, perhaps a line end; percent-encode it in a password")
    if "#" in text:
        raise ValueError("contains a #, which begins no part of it; percent-encode it as %23")
    try:
        url = urlsplit(text)
    except ValueError:
        raise ValueError("is not a URL; percent-encode special characters in the password") from None
    options = _options(url.query, scheme)
    userinfo, _, hosts = url.netloc.rpartition("@")
    login = _credentials(userinfo)
    tls = _tls(options) if scheme.startswith("rediss") else None
    if scheme == "unix":
        return RedisLocation(path=_socket(hosts, url.path), db=_number(options.get("db", "0")), login=login)
    if scheme.endswith("sentinel"):
        master, db = _master_and_db(url.path, options)
        sentinel_login = Login(options.get("sentinel_username"), options.get("sentinel_password"))
        found = tuple(_host(host, SENTINEL_PORT) for host in hosts.split(","))
        return RedisLocation(found, "", master, db, login, sentinel_login, tls)
    if scheme.endswith("cluster"):
        if url.path.strip("/"):
            raise ValueError("must end with the hosts: a Cluster has no database but 0")
        found = tuple(_host(host, REDIS_PORT) for host in hosts.split(","))
        return RedisLocation(found, login=login, tls=tls, cluster=True, addresses=_addresses(options))
    if "," in hosts:
        raise ValueError(
            "must name one host; Sentinels belong into redis+sentinel://, and a Cluster's nodes into "
            "redis+cluster://"
        )
    return RedisLocation((_host(hosts, REDIS_PORT),), db=_db(url.path, options), login=login, tls=tls)


def with_credentials(url: str, *, username: str = "", password: str = "", sentinel_password: str = "") -> str:
    """Return `url`, which must be valid, with these credentials in the places that it leaves empty."""
    if username or password:
        scheme, _, rest = url.partition("://")
        place = re.match(r"[^/?]*", rest)
        userinfo, at, _ = (place[0] if place else "").rpartition("@")
        user, _, secret = userinfo.partition(":")
        login = f"{user or quote(username, safe='')}:{secret or quote(password, safe='')}"
        url = f"{scheme}://{login}@{rest[len(userinfo + at) :]}"
    if sentinel_password:
        url += f"{'&' if '?' in url else '?'}sentinel_password={quote(sentinel_password, safe='')}"
    return url


def _credentials(userinfo: str) -> Login:
    user, _, password = userinfo.partition(":")
    return Login(unquote(user) or None, unquote(password) or None)


def _host(text: str, port: int) -> Address:
    match = _HOST.fullmatch(text)
    if match is None or (match["port"] is not None and not 0 < int(match["port"] or 0) < 65536):
        raise ValueError(
            "has no port number where one belongs; percent-encode special characters in the password"
        )
    if not match["host"]:
        raise ValueError("must name a host, as in redis://127.0.0.1:6379/0")
    return unquote(match["host"]).strip("[]"), int(match["port"] or port)


def _addresses(options: Mapping[str, str]) -> Mapping[Address, Address]:
    found: dict[Address, Address] = {}
    for pair in filter(None, options.get("addresses", "").split(",")):
        try:
            announced, reachable = map(split, pair.split("="))
        except ValueError:
            raise ValueError(
                "must have pairs host:port=host:port, joined by commas, after addresses=: how the Cluster "
                "calls a node, and where it is reached"
            ) from None
        found[announced] = reachable
    return MappingProxyType(found)


def _socket(host: str, path: str) -> str:
    if host:
        raise ValueError("must have three slashes before the socket's path, as in unix:///run/redis.sock")
    if not path.strip("/"):
        raise ValueError("must name the socket's path, as in unix:///run/redis.sock")
    return unquote(path)


def _db(path: str, options: Mapping[str, str]) -> int:
    if not re.fullmatch(r"/?|/\d+", path):
        raise ValueError("must end with a database number, as in redis://127.0.0.1:6379/0")
    return _number(options.get("db", path.strip("/") or "0"))


def _master_and_db(path: str, options: Mapping[str, str]) -> tuple[str, int]:
    master, _, db = path.removeprefix("/").partition("/")
    if not master or not re.fullmatch(r"\d*", db):
        raise ValueError(
            "must end with the master's name, and a database number if any, "
            "as in redis+sentinel://10.0.0.1,10.0.0.2,10.0.0.3/mymaster/0"
        )
    return unquote(master), _number(options.get("db", db or "0"))


def _number(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,9}", text):
        raise ValueError("must have a database number after db=, as in unix:///run/redis.sock?db=0")
    return int(text)


def _options(query: str, scheme: str) -> Mapping[str, str]:
    """Return the options by name. Names are taken unchanged, so that masking finds them, too."""
    allowed = [] if scheme.endswith("cluster") else ["db"]
    allowed += TLS_OPTIONS if scheme.startswith("rediss") else ()
    allowed += SENTINEL_OPTIONS if scheme.endswith("sentinel") else ()
    allowed += CLUSTER_OPTIONS if scheme.endswith("cluster") else ()
    found: dict[str, str] = {}
    for part in query.split("&") if query else ():
        name, _, value = part.partition("=")
        if name not in URL_OPTIONS:
            raise ValueError(f"takes only these options after ?: {', '.join(URL_OPTIONS)}")
        if name not in allowed:
            raise ValueError(f"takes {name} only after {_needed(name)}")
        if name in found:
            raise ValueError(f"has {name} twice")
        found[name] = unquote(value)
    return MappingProxyType(found)


def _needed(option: str) -> str:
    if option in TLS_OPTIONS:
        return "rediss://, rediss+sentinel:// or rediss+cluster://"
    return {"db": "the forms for one server", "addresses": "redis+cluster://"}.get(
        option, "redis+sentinel://"
    )


def _tls(options: Mapping[str, str]) -> Tls:
    cert_reqs = options.get("ssl_cert_reqs", "required")
    if cert_reqs not in ("required", "optional", "none"):
        raise ValueError("must have required, optional or none after ssl_cert_reqs=")
    check = _TRUTH.get(options.get("ssl_check_hostname", "true").lower())
    if check is None:
        raise ValueError("must have true or false after ssl_check_hostname=")
    for name in ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile"):
        if name in options and not options[name]:
            raise ValueError(f"must have a file's path after {name}=")
    if "ssl_keyfile" in options and "ssl_certfile" not in options:
        raise ValueError("has ssl_keyfile and no ssl_certfile; a client certificate needs both")
    return Tls(
        options.get("ssl_ca_certs"),
        options.get("ssl_certfile"),
        options.get("ssl_keyfile"),
        cert_reqs,
        check and cert_reqs != "none",  # a certificate that is not verified has no name to check
    )
