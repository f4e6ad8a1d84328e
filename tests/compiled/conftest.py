"""The real tool chain for the tests that need it."""

from __future__ import annotations

import os

import pytest

from kgen.errors import KgenError
from kgen.virtual import Toolchain, find_toolchain


@pytest.fixture(scope="session")
def toolchain() -> Toolchain:
    """The real tool chain; without one, tests are skipped unless KGEN_REQUIRE_TOOLCHAIN=1 makes that a failure."""
    try:
        return find_toolchain()
    except KgenError as error:
        if os.environ.get("KGEN_REQUIRE_TOOLCHAIN") == "1":
            pytest.fail(f"KGEN_REQUIRE_TOOLCHAIN=1, and {error.message}: {error.hint}")
        pytest.skip(f"{error.message} ({error.hint})")
