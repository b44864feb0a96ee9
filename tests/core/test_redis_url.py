"""The forms of `redis.url`."""

from __future__ import annotations

from dataclasses import replace

import pytest

from relay.core.endpoints.redis_url import Login, RedisLocation, Tls, parse, with_credentials

NONE = Login()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("redis://h", RedisLocation((("h", 6379),))),
        ("redis://[::1]:1/2", RedisLocation((("::1", 1),), db=2)),
        ("redis://h?db=3", RedisLocation((("h", 6379),), db=3)),
        ("redis://u:p%40%2F@h", RedisLocation((("h", 6379),), login=Login("u", "p@/"))),
        ("redis://:p@h", RedisLocation((("h", 6379),), login=Login(None, "p"))),
        (
            "unix://u:p@/run/a%20b.sock?db=1",
            RedisLocation(path="/run/a b.sock", db=1, login=Login("u", "p")),
        ),
        ("rediss://h:1", RedisLocation((("h", 1),), tls=Tls())),
        (
            "rediss://h?ssl_ca_certs=/ca%20.pem&ssl_certfile=/c&ssl_keyfile=/k&ssl_check_hostname=no",
            RedisLocation((("h", 6379),), tls=Tls("/ca .pem", "/c", "/k", "required", check_hostname=False)),
        ),
        (
            "rediss://h?ssl_cert_reqs=none",
            RedisLocation((("h", 6379),), tls=Tls(cert_reqs="none", check_hostname=False)),
        ),
        (
            "redis+sentinel://u:p@h1:1,h2,[::1]:3/my%20master/4",
            RedisLocation(
                (("h1", 1), ("h2", 26379), ("::1", 3)), master="my master", db=4, login=Login("u", "p")
            ),
        ),
        (
            "rediss+sentinel://h1/m?sentinel_username=s&sentinel_password=q%26%40",
            RedisLocation((("h1", 26379),), master="m", sentinel_login=Login("s", "q&@"), tls=Tls()),
        ),
        ("REDIS://h", RedisLocation((("h", 6379),))),
        (
            "redis+cluster://u:p@h1:7000,h2,[::1]:7001/",
            RedisLocation((("h1", 7000), ("h2", 6379), ("::1", 7001)), login=Login("u", "p"), cluster=True),
        ),
        (
            "rediss+cluster://h?ssl_cert_reqs=none&addresses=10.0.0.2:7000=h:17000,[::1]:1=h:2",
            RedisLocation(
                (("h", 6379),),
                tls=Tls(cert_reqs="none", check_hostname=False),
                cluster=True,
                addresses={("10.0.0.2", 7000): ("h", 17000), ("::1", 1): ("h", 2)},
            ),
        ),
    ],
)
def test_what_a_url_says(text: str, expected: RedisLocation) -> None:
    assert parse(text) == expected


WRONG = [
    ("", "must begin with"),
    ("http://SECRET@h", "must begin with"),
    ("redis:h", "must begin with"),
    ("redis://", "must name a host"),
    ("redis://:SECRET@", "must name a host"),
    ("redis://:SECRET@h:x", "no port number"),
    ("redis://:SECRET@h:0", "no port number"),
    ("redis://:SECRET@h:65536", "no port number"),
    ("redis://:SEC/RET@h", "no port number"),
    ("redis://:SECRET@::1", "no port number"),
    ("redis://:SECRET@[::1", "is not a URL"),
    ("redis://:SECRET#@h", "percent-encode it as %23"),
    ("redis://:SECRET@h/0\n", "white space"),
    ("redis://:SECRET@h/x", "database number"),
    ("redis://:SECRET@h/1/2", "database number"),
    ("redis://:SECRET@h?db=-1", "database number"),
    ("redis://:SECRET@h1,h2", "must name one host; Sentinels belong into redis\\+sentinel://"),
    ("redis://:SECRET@h?ssl_ca_certs=/x", "takes ssl_ca_certs only after rediss://"),
    ("redis://h?sentinel_password=SECRET", "takes sentinel_password only after redis\\+sentinel://"),
    ("redis://h?password=SECRET", "only these options"),
    ("redis+sentinel://h/m?sentinel%5Fpassword=SECRET", "only these options"),
    ("redis+sentinel://h/m?sentinel_password=SECRET&sentinel_password=SECRET", "sentinel_password twice"),
    ("redis+sentinel://:SECRET@h1,h2", "must end with the master's name"),
    ("redis+sentinel://:SECRET@h1,h2/m/x", "must end with the master's name"),
    ("redis+sentinel://:SECRET@h1,,h2/m", "must name a host"),
    ("redis+sentinel://:SECRET@h1:x,h2/m", "no port number"),
    ("redis+cluster://:SECRET@h1,h2/1", "must end with the hosts: a Cluster has no database but 0"),
    ("redis+cluster://:SECRET@h1,h2?db=1", "takes db only after the forms for one server"),
    ("redis+cluster://:SECRET@h1,,h2", "must name a host"),
    ("redis+cluster://:SECRET@h?addresses=h:1", "must have pairs host:port=host:port"),
    ("redis+cluster://:SECRET@h?addresses=h:1=SECRET", "must have pairs host:port=host:port"),
    ("redis+cluster://:SECRET@h?ssl_ca_certs=/x", "takes ssl_ca_certs only after rediss://"),
    ("redis://:SECRET@h?addresses=h:1=h:2", "takes addresses only after redis\\+cluster://"),
    ("rediss://:SECRET@h?ssl_cert_reqs=maybe", "ssl_cert_reqs="),
    ("rediss://:SECRET@h?ssl_check_hostname=maybe", "ssl_check_hostname="),
    ("rediss://:SECRET@h?ssl_keyfile=/SECRET", "no ssl_certfile"),
    ("rediss://:SECRET@h?ssl_ca_certs=", "path after ssl_ca_certs="),
    ("unix://:SECRET@", "name the socket's path"),
    ("unix://:SECRET@run/redis.sock", "three slashes"),
]


@pytest.mark.parametrize(("text", "problem"), WRONG)
def test_what_is_wrong_with_one(text: str, problem: str) -> None:
    """Each has a sentence of its own, which repeats no part of it."""
    with pytest.raises(ValueError, match=problem) as caught:
        parse(text)
    assert "SEC" not in str(caught.value)
    assert "RET" not in str(caught.value)


def test_passwords_are_not_shown() -> None:
    """Not even by repr."""
    location = parse("rediss+sentinel://u:hunter2@h/m?sentinel_password=hunter3")
    assert "hunter" not in repr(location)


@pytest.mark.parametrize(
    "url",
    [
        "redis://h:1/2",
        "redis://h?db=3",
        "rediss://h?ssl_ca_certs=/a@b",
        "unix:///run/redis.sock?db=1",
        "redis+sentinel://h1,h2:1/m/0?sentinel_username=s",
        "redis+cluster://h1,h2:1?addresses=h:1=h:2",
    ],
)
def test_credentials_are_put_into_a_url(url: str) -> None:
    """As they are in a Secret, whatever they consist of; all else of the URL stays."""
    secret = "p@s:s/w?o&r=d#%41 é"
    found = parse(with_credentials(url, username="al:ice", password=secret))
    assert found.login == Login("al:ice", secret)
    assert replace(found, login=NONE) == replace(parse(url), login=NONE)


def test_credentials_are_put_beside_what_the_url_has() -> None:
    assert parse(with_credentials("redis://bob@h", password="p")).login == Login("bob", "p")
    assert parse(with_credentials("redis://:p@h", username="bob")).login == Login("bob", "p")
    assert parse(with_credentials("redis://h", password="p")).login == Login(None, "p")
    asked = with_credentials("redis+sentinel://h/m", sentinel_password="&@")
    assert parse(asked).sentinel_login == Login(None, "&@")
    assert with_credentials("redis://bob:p@h") == "redis://bob:p@h"
