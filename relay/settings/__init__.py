"""The settings: where they come from, and their bounds.

    settings = load(Path("relay.yaml"))     # environment over file over defaults
    settings.policies()("invoices").lease_ttl  # topics: over defaults:

`docs/reference/settings.md` lists every field; `python tools/settings_docs.py` writes it.
"""

from relay.settings.load import load
from relay.settings.problems import SettingsError
from relay.settings.tree import (
    ApiSettings,
    GrpcSettings,
    HttpSettings,
    LogSettings,
    PolicySettings,
    RedisSettings,
    RedisUrl,
    Settings,
)
from relay.settings.variables import doubtful

__all__ = [
    "ApiSettings",
    "GrpcSettings",
    "HttpSettings",
    "LogSettings",
    "PolicySettings",
    "RedisSettings",
    "RedisUrl",
    "Settings",
    "SettingsError",
    "doubtful",
    "load",
]
