"""Fixtures that all tests share."""

import pytest
from hypothesis import Phase, settings

from tests.helpers import FORMS, Scene

# For broken sources, which are to be noticed and not to be understood.
settings.register_profile("mutants", phases=(Phase.explicit, Phase.generate))


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
