"""Which servers the suite runs on."""

from __future__ import annotations

from typing import get_args

import pytest

from tests.missing import skip
from tests.servers import BROUGHT_BY, Kind, binary


@pytest.mark.parametrize("kind", get_args(Kind))
def test_every_kind_of_server_is_here(kind: Kind) -> None:
    """A kind that is not installed costs this one skip, however many tests run on the others alone."""
    if binary(kind) is None:
        skip(f"{kind} server", BROUGHT_BY[kind])
