"""The password of Redis is shown nowhere: not printed, not in errors, not in logs."""

from __future__ import annotations

import time
import traceback
from pathlib import Path

import pytest
from pydantic import ValidationError

from relay.core.endpoints.secrets import mask
from relay.settings import Settings, SettingsError, load

SECRET = "hunter2"
URL = f"redis://bob:{SECRET}@cache:6379/0"


def test_a_tree_never_shows_it_and_still_has_it() -> None:
    settings = load(environ={"RELAY_REDIS__URL": URL})
    shown = (
        f"{settings} {settings!r} {settings.redis} {settings.redis.url!r} {settings.redis.url} "
        f"{settings.model_dump()} {settings.model_dump(mode='json')} {settings.model_dump_json()}"
    )
    assert SECRET not in shown
    assert str(settings.redis.url) == "redis://bob:***@cache:6379/0"
    assert settings.redis.url.get_secret_value() == URL


@pytest.mark.parametrize(
    "content",
    [
        f"redis: {{url: 'http://:{SECRET}@h'}}",
        f"redis: {{url: 'redis://:{SECRET}@h:{SECRET}'}}",
        f"redis: {{url: 'redis://:{SECRET}/x@h/1/2'}}",
        f"redis: {{url: ['{URL}']}}",
        f"redis: {{url: '{URL}', command_timeout: '{URL}'}}",
        f"redis: '{SECRET}'",
        f"redis: {{passwort: {SECRET}}}",
        f"redis: {{password: [{SECRET}]}}",
        f"redis: {{password: '{SECRET}', username: [x]}}",
        f"redis: {{password: '{SECRET}', url: '{URL}'}}",
        f"redis: {{sentinel_password: '{SECRET}'}}",
        f'redis: {{password: "{SECRET}\\n"}}',
        f"redis: {{url: 'redis://:{SECRET}@h'",
        f"redis:\n  url: {URL}\n url: *{SECRET}",
        f"redis: {{url: *{SECRET}}}",
        f"redis: {{url: !{SECRET} x}}",
        f"grpc: {{listen: '{URL}'}}",
        f"topics: {{a: '{URL}'}}",
        f"rediss: {URL}",
    ],
)
def test_no_error_shows_it(tmp_path: Path, content: str) -> None:
    config = tmp_path / "relay.yaml"
    config.write_text(content)
    with pytest.raises(SettingsError) as caught:
        load(config, environ={})
    assert SECRET not in "".join(traceback.format_exception(caught.value))
    assert SECRET not in repr(caught.value)


def test_an_error_of_the_tree_itself_does_not_show_it() -> None:
    with pytest.raises(ValidationError) as caught:
        Settings.model_validate({"redis": {"url": f"http://:{SECRET}@h", "start_timeout": f"x{SECRET}"}})
    assert SECRET not in str(caught.value)


def test_a_wrong_url_in_the_environment_names_its_variable() -> None:
    with pytest.raises(SettingsError) as caught:
        load(environ={"RELAY_REDIS__URL": f"http://:{SECRET}@h"})
    assert caught.value.problems == (
        (
            "redis.url: must begin with redis://, rediss://, unix://, redis+sentinel://, "
            "rediss+sentinel://, redis+cluster:// or rediss+cluster:// (from RELAY_REDIS__URL)"
        ),
    )


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("nothing here @ all", "nothing here @ all"),
        ("redis://h:1/0", "redis://h:1/0"),
        ("redis://u:p@h", "redis://u:***@h"),
        ("redis://:p@h", "redis://:***@h"),
        ("redis://p@h", "redis://***@h"),
        ("at redis://u:p@ss/w@h:1/0 and rediss://:q@i", "at redis://u:***@h:1/0 and rediss://:***@i"),
        ("redis+sentinel://u:p@h1:1,h2/m/0", "redis+sentinel://u:***@h1:1,h2/m/0"),
        ("at redis+sentinel://:p%40q@h1,h2/m now", "at redis+sentinel://:***@h1,h2/m now"),
        (
            "redis+sentinel://u:p@h1,h2/m?sentinel_username=s&sentinel_password=p",
            "redis+sentinel://u:***@h1,h2/m?sentinel_username=s&sentinel_password=***",
        ),
        (
            "redis+sentinel://h1,h2/m?sentinel_password=p%40q&db=1",
            "redis+sentinel://h1,h2/m?sentinel_password=***&db=1",
        ),
        ("redis+sentinel://u:p@h1,h2/m?sentinel_password=p@q", "redis+sentinel://***"),
        ("unix://u:p@/run/redis.sock", "unix://u:***@/run/redis.sock"),
        ("redis://h?password=p&db=1", "redis://h?password=***&db=1"),
        ("unix:///s?db=1&PASSWORD=p", "unix:///s?db=1&PASSWORD=***"),
    ],
)
def test_masking(text: str, masked: str) -> None:
    """A user name stays; a lone word before the @ may be a password, and goes."""
    assert mask(text) == masked


def test_credentials_of_their_own_are_hidden_too() -> None:
    settings = load(environ={"RELAY_REDIS__PASSWORD": SECRET, "RELAY_REDIS__USERNAME": "bob"})
    assert SECRET not in f"{settings!r} {settings} {settings.model_dump_json()} {settings.redis.password}"
    assert settings.redis.location == f"redis://bob:{SECRET}@127.0.0.1:6379/0"


def test_masking_takes_a_time_that_grows_with_the_text() -> None:
    """Whatever is logged comes through it: by the square, 200 kB would take a minute."""
    began = time.process_time()
    for piece in ("is+cluster://a:1", "r", "://", "a://b"):
        mask("redis://" + piece * 200_000)
    assert time.process_time() - began < 5.0
