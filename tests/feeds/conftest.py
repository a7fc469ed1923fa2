"""What the live tests share: an index, and publishers that are always stopped."""

from collections.abc import Callable, Iterator

import pytest

import kvindex
from tests.feeds.publisher import Publisher
from tests.helpers import BLOCK

Start = Callable[..., Publisher]


@pytest.fixture
def index() -> kvindex.Indexer:
    """Return an empty index with blocks of four tokens."""
    return kvindex.Indexer(block_size=BLOCK)


@pytest.fixture
def start() -> Iterator[Start]:
    """Return a way to start publishers that stop with the test."""
    running: list[Publisher] = []

    def starter(*args: object, **options: object) -> Publisher:
        running.append(Publisher(*args, **options))  # type: ignore[arg-type]
        return running[-1]

    yield starter
    for publisher in running:
        publisher.stop()
