"""What all tests share: compiled programs are forgotten with the file of tests that used them, or they fill the memory."""

from __future__ import annotations

from collections.abc import Iterator

import jax
import pytest


@pytest.fixture(autouse=True, scope="module")
def programs_are_forgotten() -> Iterator[None]:
    yield
    jax.clear_caches()
