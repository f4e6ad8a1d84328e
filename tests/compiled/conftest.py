"""The real tool chain, and the peers, for the tests that need them."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from kgen.errors import KgenError
from kgen.virtual import Toolchain, find_toolchain
from kgen.virtual.peers import Capture, find_peers


@pytest.fixture(scope="session")
def toolchain() -> Toolchain:
    """The real tool chain; without one, tests are skipped unless KGEN_REQUIRE_TOOLCHAIN=1 makes that a failure."""
    try:
        return find_toolchain()
    except KgenError as error:
        if os.environ.get("KGEN_REQUIRE_TOOLCHAIN") == "1":
            pytest.fail(f"KGEN_REQUIRE_TOOLCHAIN=1, and {error.message}: {error.hint}")
        pytest.skip(f"{error.message} ({error.hint})")


@pytest.fixture(scope="session")
def capture() -> Iterator[Capture]:
    """A capture in the peers' environment; without one, tests are skipped unless KGEN_REQUIRE_PEERS=1."""
    try:
        find_peers()
    except KgenError as error:
        if os.environ.get("KGEN_REQUIRE_PEERS") == "1":
            pytest.fail(f"KGEN_REQUIRE_PEERS=1, and {error.message}: {error.hint}")
        pytest.skip(f"{error.message} ({error.hint})")
    with Capture() as found:
        yield found
