"""Faults happen at moments drawn from a seed: `make faults` says how to draw others, and more of them."""

import os
import random

import pytest

from tests.service.conftest import Two, _two, two

__all__ = ["Two", "_two", "two"]  # two releases, as the tests of the service have them


@pytest.fixture
def rng() -> random.Random:
    """The same moments every time, unless FAULTS_SEED says otherwise."""
    return random.Random(int(os.environ.get("FAULTS_SEED", "0")))  # noqa: S311 (no secret)


@pytest.fixture(scope="session")
def rounds() -> int:
    """How often the faults happen whose moment is drawn."""
    return int(os.environ.get("FAULTS_ROUNDS", "1"))
