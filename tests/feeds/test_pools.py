"""Pools followed over real sockets, as workers are."""

import kvindex
from kvindex.feeds import Feed, Source
from tests.engines import payloads
from tests.engines.test_mooncake import batch as objects
from tests.engines.test_mooncake import parts, said
from tests.feeds.batches import batch, stores
from tests.feeds.conftest import Start
from tests.helpers import depths, tokens

KINDS = ("0_k", "0_v")


def put(path: str) -> bytes:
    """Return a batch of Mooncake's: the objects of a path's pages were put."""
    return objects(*(said("stored", key) for key in parts(path, *KINDS)))


def test_a_store_is_followed_beside_a_worker_of_its_name(
    index: kvindex.Indexer, start: Start
) -> None:
    index.register_pool("a", profile="mooncake")
    worker, store = start(replay=False), start(replay=False)
    sources = [Source("a", worker.endpoint), Source("a", store.endpoint, pool=True)]
    with Feed(index, sources) as feed:
        for publisher in (worker, store):
            publisher.subscribed()
        worker.publish(batch(stores("A")))
        store.send(1, put("ABC"))
        assert feed.wait(until=lambda rows: all(row.applied for row in rows))
        (row,) = index.match(tokens("ABC"))
        assert (row.worker, row.device, row.shared) == ("a", 1, 2)
        assert [row.pool for row in feed.sources()] == [False, True]
        assert feed.remove("a", pool=True)
        assert [row.pool for row in feed.sources()] == [False]


def test_a_stores_losses_are_reported_or_reset_it(
    index: kvindex.Indexer, start: Start
) -> None:
    index.register_pool("store", profile="mooncake")
    store = start(replay=False)
    source = Source("store", store.endpoint, pool=True)
    with Feed(index, [source], on_gap="reset") as feed:
        store.subscribed()
        store.send(1, put("AB"))
        assert feed.wait(until={"store": 1})
        assert index.match(tokens("ABC")).pools == {"store": 2}
        store.send(4, put("C"))
        assert feed.wait(until={"store": 4})
        (row,) = feed.sources()
        # The master counts from 1: what came before is told as lost, too.
        assert (row.lost_ranges, row.resets) == (((0, 0), (2, 3)), 1)
        assert index.match(tokens("ABC")).pools == {"store": 0}
        assert index.match(tokens("C")).pools == {"store": 1}


def test_a_master_that_restarts_has_an_empty_store(
    index: kvindex.Indexer, start: Start
) -> None:
    index.register_pool("store", profile="mooncake")
    store = start(replay=False)
    with Feed(index, [Source("store", store.endpoint, pool=True)]) as feed:
        store.subscribed()
        for seq in (1, 2):
            store.send(seq, put("AB"))
        assert feed.wait(until={"store": 2})
        store.send(1, put("X"))
        assert feed.wait(until=lambda rows: rows[0].restarts == 1)
        assert index.match(tokens("AB")).pools == {"store": 0}
        assert index.match(tokens("X")).pools == {"store": 1}
        assert depths(index, "AB") == {}


def test_lmcaches_shared_tier_is_followed(index: kvindex.Indexer, start: Start) -> None:
    index.register_pool("l2", profile="lmcache_shared")
    feeds = start(replay=False)
    source = Source("l2", feeds.endpoint, pool=True)
    with Feed(index, [source]) as feed:
        feeds.subscribed()
        for payload in payloads("lmcache/mp_connector_vllm_frames.jsonl")[:3]:
            feeds.publish(payload)
        assert feed.wait(until={"l2": 2})
        (row,) = feed.sources()
        assert (row.applied, row.ranks, row.last_error) == (3, (0,), None)
        (state,) = index.pools()
        assert (state.pool, state.seq) == ("l2", 2)
        assert index.workers() == []
