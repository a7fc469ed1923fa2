"""What a query answers: section 4 of the contract."""

import random
from collections import Counter
from typing import Any

import numpy as np
import pytest

import kvindex
from tests import wire
from tests.helpers import (
    BLOCK,
    HEX,
    Scene,
    depths,
    names,
    raw,
    scores,
    split,
    tokens,
)

TIERS = ("gpu", "cpu", "disk", "external")


def tiered(scene: Scene) -> None:
    """Hold A on disk, B on the device, C on host and disk, D on external."""
    scene.S("w1", "A", tier="disk")
    scene.S("w1", "B", "A")
    for tier in ("cpu", "disk"):
        scene.S("w1", "C", "AB", tier=tier)
    scene.S("w1", "D", "ABC", tier="external")


# Depth, tiers and score.


def test_depth_is_over_all_tiers(scene: Scene) -> None:
    tiered(scene)
    row = scene.rows("ABCDE")["w1"]
    assert row.depth == 4
    assert split(row) == (1, 1, 1, 1)
    assert row.score == 1.0 + 0.75 + 0.25 + 0.25


def test_each_block_belongs_to_its_nearest_tier(scene: Scene) -> None:
    for tier in reversed(TIERS):
        scene.S("w1", "AB", tier=tier)
        expected = [0, 0, 0, 0]
        expected[TIERS.index(tier)] = 2
        assert split(scene.rows("AB")["w1"]) == tuple(expected)


def test_the_nearest_tier_counts_and_not_the_heaviest(scene: Scene) -> None:
    scene.S("w1", "A")
    scene.S("w1", "A", tier="cpu")
    row = scene.rows("A", weights={"device": 0.1, "host": 9.0})["w1"]
    assert (split(row), row.score) == ((1, 0, 0, 0), 0.1)


def test_a_hole_ends_the_prefix(scene: Scene) -> None:
    scene.S("w1", "ABCDEF")
    scene.R("w1", "ABCD")
    assert scene.depths("ABCDEF") == {"w1": 3}
    scene.S("w1", "D", "ABC", tier="disk")
    assert split(scene.rows("ABCDEF")["w1"]) == (5, 0, 1, 0)


def test_only_holders_with_a_depth_are_returned(scene: Scene) -> None:
    scene.S("w1", "A")
    scene.S("w2", "Q")
    scene.S("w3", "BC", "A")
    assert scene.depths("ABC") == {"w1": 1}
    assert len(scene.index.match(tokens("Z"))) == 0
    assert len(scene.index.match([])) == 0


def test_answers_grow_with_the_query_one_block_at_a_time(scene: Scene) -> None:
    path = "ABCDEFGHIJKLMNOP"
    for number in range(1, len(path) + 1):
        scene.S(f"w{number}", path[:number])
    for length in range(len(path) + 1):
        assert scene.depths(path[:length]) == {
            f"w{number}": min(number, length)
            for number in range(1, len(path) + 1)
            if length
        }


# Weights.


def test_default_weights_are_read_back(objects: Scene) -> None:
    weights = objects.index.weights
    defaults = {"device": 1.0, "host": 0.75, "disk": 0.25, "external": 0.25}
    assert {key: weights[key] for key in defaults} == defaults


def test_weights_override_key_by_key_per_index_and_per_query(form: str) -> None:
    scene = Scene(form, weights={"disk": 0.5, "host": 2})
    assert scene.index.weights["disk"] == 0.5
    assert scene.index.weights["device"] == 1.0
    tiered(scene)
    assert scene.scores("ABCD") == {"w1": 1.0 + 2.0 + 0.5 + 0.25}
    found = scene.scores("ABCD", weights={"host": 0.125, "external": 4.0})
    assert found == {"w1": 1.0 + 0.125 + 0.5 + 4.0}
    assert scene.scores("ABCD") == {"w1": 1.0 + 2.0 + 0.5 + 0.25}


def test_a_weight_may_be_zero_or_more_than_one(scene: Scene) -> None:
    tiered(scene)
    weights = {"device": 0, "host": 100.0, "disk": 0.0, "external": 0}
    assert scene.scores("ABCD", weights=weights) == {"w1": 100.0}
    assert scene.depths("ABCD", weights=weights) == {"w1": 4}


def test_a_weight_for_pools_is_taken(objects: Scene) -> None:
    objects.S("w1", "A")
    assert objects.scores("A", weights={"shared": 0.1}) == {"w1": 1.0}


def test_the_callers_weights_are_not_kept(objects: Scene) -> None:
    given = {"device": 2.0}
    index = kvindex.Indexer(block_size=BLOCK, weights=given)
    given["device"] = 5.0
    index.weights["device"] = 7.0
    index.apply([objects.stored("A")], worker="w1")
    assert scores(index, "A") == {"w1": 2.0}


# Candidates.


def test_candidates_have_one_row_each_in_the_given_order(scene: Scene) -> None:
    scene.S("w1", "AB")
    scene.S("w2", "A")
    scene.S("w3", "ABC")
    found = scene.index.match(tokens("ABC"), workers=["w2", "w9", "w1", "w2"])
    assert list(found.workers) == ["w2", "w9", "w1", "w2"]
    assert list(found.depths) == [1, 0, 2, 1]


def test_a_name_gives_its_best_rank_and_a_pair_exactly_that(scene: Scene) -> None:
    scene.S("w1@1", "A")
    scene.S("w1@2", "ABC")
    scene.S("w1@3", "AB")
    found = scene.index.match(
        tokens("ABC"), workers=["w1", ("w1", 1), ("w1", 0), ("w1", 3)]
    )
    assert list(found.dp_ranks) == [2, 1, 0, 3]
    assert list(found.depths) == [3, 1, 0, 2]


def test_the_best_rank_is_by_score_then_depth_then_the_lowest(scene: Scene) -> None:
    def best_rank(path: str, **options: Any) -> tuple[int, int]:  # noqa: ANN401
        (row,) = scene.index.match(tokens(path), workers=["w1"], **options)
        return row.dp_rank, row.depth

    scene.S("w1@4", "AB")
    scene.S("w1@5", "ABC", tier="disk")
    assert best_rank("ABC") == (4, 2)
    scene.S("w1@6", "AB")
    scene.S("w1@3", "AB")
    assert best_rank("ABC") == (3, 2)
    weights = dict.fromkeys(("device", "disk"), 0.0)
    assert best_rank("ABC", weights=weights) == (5, 3)
    assert best_rank("Z")[1] == 0


def test_no_candidates_give_no_rows(scene: Scene) -> None:
    scene.S("w1", "A")
    assert len(scene.index.match(tokens("A"), workers=[])) == 0


def test_candidates_are_resolved_once_for_many_queries(scene: Scene) -> None:
    scene.S("w1", "AB")
    scene.S("w2@3", "A")
    given: list[str | tuple[str, int]] = ["w1", ("w2", 3), "w9", "w2"]
    who = scene.index.candidates(given)
    for path in ("AB", "A", "Z"):
        text = tokens(path)
        assert scene.index.match(text, workers=who) == scene.index.match(
            text, workers=given
        )


def test_candidates_see_workers_that_come_and_go(scene: Scene) -> None:
    who = scene.index.candidates(["w1", "w2"])
    assert list(scene.index.match(tokens("A"), workers=who).depths) == [0, 0]
    scene.S("w1", "A")
    scene.S("w2@1", "A")
    assert list(scene.index.match(tokens("A"), workers=who).depths) == [1, 1]
    scene.index.remove_worker("w1")
    assert list(scene.index.match(tokens("A"), workers=who).depths) == [0, 1]
    scene.S("w1", "A")
    assert list(scene.index.match(tokens("A"), workers=who).depths) == [1, 1]


# cascade=True.


def test_a_cascade_never_returns_to_a_nearer_tier(scene: Scene) -> None:
    scene.S("w1", "AB")
    scene.S("w1", "C", "AB", tier="cpu")
    scene.S("w1", "D", "ABC")
    scene.S("w1", "E", "ABCD", tier="disk")
    assert split(scene.rows("ABCDE")["w1"]) == (3, 1, 1, 0)
    assert split(scene.rows("ABCDE", cascade=True)["w1"]) == (2, 1, 0, 0)


def test_a_cascade_goes_on_where_the_tier_before_stopped(scene: Scene) -> None:
    for path, tier in (("A", "gpu"), ("ABC", "cpu"), ("ABCDE", "disk")):
        scene.S("w1", path, tier=tier)
    scene.S("w1", "F", "ABCDE", tier="external")
    row = scene.rows("ABCDEFG", cascade=True)["w1"]
    assert split(row) == (1, 2, 2, 1)
    assert row.score == 1 + 1.5 + 0.5 + 0.25


def test_a_cascade_starts_at_the_root_on_any_tier(scene: Scene) -> None:
    scene.S("w1", "AB", tier="external")
    assert split(scene.rows("AB", cascade=True)["w1"]) == (0, 0, 0, 2)
    scene.S("w1", "B", "A")
    assert split(scene.rows("AB", cascade=True)["w1"]) == (0, 0, 0, 2)
    assert split(scene.rows("AB")["w1"]) == (1, 0, 0, 1)


def test_a_cascade_takes_units_whole(scene: Scene) -> None:
    scene.S("w1", "A")
    scene.S("w1", "ABCD", names=[1], tier="cpu", block_size=4 * BLOCK)
    assert split(scene.rows("ABC", cascade=True)["w1"]) == (1, 0, 0, 0)
    assert split(scene.rows("ABCD", cascade=True)["w1"]) == (1, 3, 0, 0)


# best().


def winner(found: kvindex.Matches, seed: int | None = None) -> str:
    row = found.best(seed=seed)
    assert row is not None
    return row.worker


def test_best_is_by_score_and_then_by_depth(scene: Scene) -> None:
    scene.S("w1", "AB")
    scene.S("w2", "ABC", tier="cpu")
    scene.S("w3", "A")
    found = scene.index.match(tokens("ABC"))
    assert winner(found) == "w2"
    found = scene.index.match(tokens("ABC"), weights={"host": 0.5})
    assert winner(found) == "w1"
    tied = scene.index.match(tokens("ABC"), weights={"device": 0.75, "host": 0.5})
    assert {winner(tied, seed) for seed in range(50)} == {"w2"}


def test_best_of_nothing_is_none(scene: Scene) -> None:
    assert scene.index.match(tokens("A")).best() is None
    assert scene.index.match(tokens("A"), workers=[]).best(seed=1) is None


def test_best_among_zeros_is_a_candidate(scene: Scene) -> None:
    found = scene.index.match(tokens("A"), workers=["w1", "w2"])
    assert {winner(found, seed) for seed in range(50)} == {"w1", "w2"}


def test_ties_are_broken_evenly_and_by_the_seed(objects: Scene) -> None:
    workers = [f"w{number}" for number in range(8)]
    for worker in workers:
        objects.S(worker, "AB")
    found = objects.index.match(tokens("AB"), workers=workers)
    draws = [winner(found, seed) for seed in range(8000)]
    assert draws == [winner(found, seed) for seed in range(8000)]
    shares = Counter(draws)
    assert set(shares) == set(workers)
    assert all(0.105 < count / 8000 < 0.145 for count in shares.values())


def test_without_a_seed_every_tied_row_has_a_chance(objects: Scene) -> None:
    for worker in ("w1", "w2"):
        objects.S(worker, "A")
    found = objects.index.match(tokens("A"))
    assert {winner(found) for _ in range(200)} == {"w1", "w2"}


# Other ways to ask.


def test_many_queries_are_answered_in_order(scene: Scene) -> None:
    scene.S("w1", "AB")
    scene.S("w2", "AC", lora="x")
    queries = [tokens(path) for path in ("AB", "Z", "AC", "", "A")]
    for options in ({}, {"lora_name": "x"}, {"workers": ["w2", "w1"]}):
        found = scene.index.match_many(queries, **options)
        assert found == [scene.index.match(text, **options) for text in queries]


def test_many_queries_of_any_kind() -> None:
    scene = Scene()
    scene.S("w1", "AB")
    text = tokens("AB")
    kinds: list[Any] = [
        text,
        tuple(text),
        np.array(text),
        np.array(text, dtype=np.uint32),
    ]
    assert [list(found.depths) for found in scene.index.match_many(kinds)] == [[2]] * 4


def test_keys_and_chains_answer_as_tokens_do(scene: Scene) -> None:
    scene.S("w1", "ABCD")
    scene.S("w2", "AB", tier="cpu")
    scene.S("w1", "ABX", lora="x")
    for options in ({}, {"lora_name": "x"}, {"mm": [(HEX["a"], 0, 3)]}):
        for path in ("ABCD", "ABXY", "AZ", ""):
            local = kvindex.block_keys(tokens(path), block_size=BLOCK, **options)
            chain = kvindex.chain_keys(local)
            for more in ({}, {"workers": ["w2", "w1"]}, {"weights": {"host": 3.0}}):
                by_tokens = scene.index.match(tokens(path), **options, **more)
                assert scene.index.match_keys(local, **more) == by_tokens
                assert scene.index.match_chain(chain, **more) == by_tokens
                with_keys = scene.index.match_with_keys(tokens(path), **options, **more)
                assert with_keys == (by_tokens, chain)


def test_names_answer_for_holders_that_hold_them_under_those_names(
    scene: Scene,
) -> None:
    scene.S("w1", "ABC")
    scene.R("w1", "ABC")
    scene.P("w1", "AB")
    scene.R("w1", "AB")
    scene.S("w2", "ABC", names=[1, 2, 3])
    hashes = names("A", "AB", "ABC")
    (row,) = scene.index.match_names(hashes)
    assert (row.worker, row.depth, split(row)) == ("w1", 2, (1, 1, 0, 0))
    (row,) = scene.index.match_names([1, 2, 3, 4])
    assert (row.worker, row.depth) == ("w2", 3)
    assert len(scene.index.match_names([5, 1, 2])) == 0
    found = scene.index.match_names([1, 2], workers=["w1", "w2"])
    assert list(found.depths) == [0, 2]


# Other queries must not match.


@pytest.mark.parametrize(
    "options",
    [
        {"lora_name": "x"},
        {"cache_salt": "s"},
        {"mm": [(HEX["a"], 0, 4)]},
        {"lora_name": "s", "cache_salt": "x"},
    ],
    ids=str,
)
def test_another_namespace_is_another_prefix(
    scene: Scene, options: dict[str, Any]
) -> None:
    scene.S("w1", "AB")
    assert scene.depths("AB", **options) == {}
    assert scene.depths("AB", lora_name=None, cache_salt=None, mm=None) == {"w1": 2}


def test_one_token_makes_another_block(scene: Scene) -> None:
    scene.S("w1", "ABC")
    text = tokens("ABC")
    for at in range(len(text)):
        other = [*text]
        other[at] += 1
        assert scene.depths(other).get("w1", 0) == at // BLOCK


# Pairs.


def test_pair_sources_are_asked_while_one_of_their_claims_lives() -> None:
    index = kvindex.Indexer(block_size=BLOCK)
    text = list(range(1, 14))
    hashes = [11, 12, 13]
    raw(index, wire.stored_map(hashes, wire.pairs(text), None, BLOCK), worker="p")
    raw(index, wire.stored_map([21, 22], text[:8], None, BLOCK), worker="t")
    assert depths(index, text) == {"p": 3, "t": 2}
    assert depths(index, text[:12]) == {"p": 2, "t": 2}
    assert depths(index, text[:4]) == {"t": 1}
    raw(index, wire.removed_map([12]), worker="p")
    assert depths(index, text) == {"p": 1, "t": 2}
    raw(index, wire.removed_map([11, 13]), worker="p")
    assert depths(index, text) == {"t": 2}


def test_the_larger_of_a_holders_two_rows_wins() -> None:
    index = kvindex.Indexer(block_size=BLOCK)
    text = list(range(1, 14))
    raw(index, wire.stored_map([11], wire.pairs(text[:5]), None, BLOCK))
    raw(index, wire.stored_map([21, 22], text[:8], None, BLOCK, medium="cpu"))
    (row,) = index.match(text)
    assert (row.depth, split(row)) == (2, (0, 2, 0, 0))
    raw(index, wire.removed_map([22], "cpu"))
    (row,) = index.match(text)
    assert (row.depth, split(row)) == (1, (1, 0, 0, 0))


def test_pairs_have_namespaces_too() -> None:
    index = kvindex.Indexer(block_size=BLOCK)
    text = list(range(1, 10))
    event = wire.stored_map([1, 2], wire.pairs(text), None, BLOCK, lora_name="x")
    raw(index, event)
    assert depths(index, text, lora_name="x") == {"w1": 2}
    assert depths(index, text) == {}
    keys = kvindex.block_keys(text, block_size=BLOCK, lora_name="x", pairs=True)
    assert list(index.match_keys(keys).depths) == [2]


# explain() and workers().


def test_workers_tell_distinct_blocks_by_tier(scene: Scene) -> None:
    tiered(scene)
    scene.S("w1", "A", tier="disk")
    scene.S("w1@2", "Q")
    lines = {(line.worker, line.dp_rank): line for line in scene.index.workers()}
    assert set(lines) == {("w1", 0), ("w1", 2)}
    line = lines["w1", 0]
    assert (line.device, line.host, line.disk, line.external) == (1, 1, 2, 1)
    assert (line.seq, line.orphans, line.duplicates) == (None, 0, 0)


def test_the_length_is_the_number_of_distinct_blocks(scene: Scene) -> None:
    assert len(scene.index) == 0
    scene.S("w1", "ABC")
    scene.S("w2", "ABX", tier="cpu")
    scene.S("w2", "AB")
    assert len(scene.index) == 4
    scene.R("w1", "AB")
    assert len(scene.index) == 4
    scene.R("w1", "ABC")
    assert len(scene.index) == 3


def test_explain_is_plain_data_about_one_holder(scene: Scene) -> None:
    tiered(scene)
    told = scene.index.explain(tokens("ABCDE"), worker="w1")
    assert isinstance(told, dict)
    assert told["depth"] == 4
    assert all(isinstance(key, str) for key in told)


def test_long_random_prompts_match_as_far_as_they_agree() -> None:
    rng = random.Random(7)
    index = kvindex.Indexer(block_size=16)
    text = [rng.getrandbits(17) for _ in range(16 * 2000)]
    raw(index, wire.stored_map(list(range(1, 2001)), text, None, 16))
    for _ in range(200):
        cut = rng.randrange(len(text))
        other = [*text[:cut], text[cut] + 1, *text[cut + 1 :]]
        assert sum(index.match(other).depths) == cut // 16
