"""Faults happen at moments drawn from a seed; `make faults` draws other moments, and more."""

import os
import random

import pytest

from tests.service.conftest import Two, _two, two

__all__ = ["Two", "_two", "two"]  # two releases, fixtures of the service's tests


@pytest.fixture
def rng() -> random.Random:
    """A generator of the moments: the same in every run, unless FAULTS_SEED is set."""
    return random.Random(int(os.environ.get("FAULTS_SEED", "0")))  # noqa: S311 (no secret)


@pytest.fixture(scope="session")
def rounds() -> int:
    """Number of faults at drawn moments, from FAULTS_ROUNDS."""
    return int(os.environ.get("FAULTS_ROUNDS", "1"))
