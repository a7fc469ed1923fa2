"""Fixtures that all tests share."""

import pytest

from tests.helpers import FORMS, Scene


@pytest.fixture(params=FORMS)
def scene(request: pytest.FixtureRequest) -> Scene:
    """Return an empty index that is told about in each of the three forms."""
    return Scene(request.param)


@pytest.fixture(params=FORMS)
def form(request: pytest.FixtureRequest) -> str:
    """Return the form in which a scene with settings of its own is told."""
    return str(request.param)


@pytest.fixture
def objects() -> Scene:
    """Return an empty index that is told about with event objects."""
    return Scene("objects")
