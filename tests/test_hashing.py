"""Hashes, against a table of literals and against the xxhash package.

Other implementations can check themselves with the table: it was computed with
xxhash, from the text of the contract alone.
"""

import random
from typing import Any

import numpy as np
import pytest

import kvindex
from tests import hashing
from tests.helpers import HEX

IMAGE = "0123456789abcdef" + "f" * 48

# Keywords of block_keys, tokens, local keys, chain keys.
GOLDEN = [
    (
        {"block_size": 4},
        [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11],
        [0x7EE2CBEDC694AB46, 0xA8416CFD935BDB13, 0xF1AA342314B9384],
        [0x7EE2CBEDC694AB46, 0x83FB702F20E2AD65, 0xEBE58E326790467B],
    ),
    (
        {"block_size": 16},
        list(range(100, 132)),
        [0x9633B31C7A2562C7, 0x10EE3BBEA3BF72F2],
        [0x9633B31C7A2562C7, 0x38EDDE460245FC8E],
    ),
    (
        {"block_size": 1},
        [0, 4294967295, 1],
        [0xE44F30ED0F7BC171, 0x2B26D3E8C52117E7, 0xC8355DA0879E060D],
        [0xE44F30ED0F7BC171, 0x3864A743D078E698, 0x713CACCD755AB680],
    ),
    (
        {"block_size": 4, "lora_name": "adapter"},
        [0, 1, 2, 3, 4, 5, 6, 7],
        [0xF22C4395042F8443, 0x3F4EA52EE159E6A8],
        [0xF22C4395042F8443, 0x75C617B0827F34F3],
    ),
    (
        {"block_size": 4, "cache_salt": "tenant"},
        [0, 1, 2, 3, 4, 5, 6, 7],
        [0xCBD06AF4D4E0AAA4, 0x4EC1F0CDD766196D],
        [0xCBD06AF4D4E0AAA4, 0x6892101A8C4CDD91],
    ),
    (
        {"block_size": 4, "lora_name": "adapter", "cache_salt": "tenant"},
        [0, 1, 2, 3, 4, 5, 6, 7],
        [0x9B9E26A566C53DF6, 0x62E38FD84D30F7E2],
        [0x9B9E26A566C53DF6, 0x43A40145837B411E],
    ),
    (
        {"block_size": 4, "mm": [(IMAGE, 2, 4)]},
        [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11],
        [0x5B5AE2C6B3F42D63, 0x46AA6F936C441FD9, 0xF1AA342314B9384],
        [0x5B5AE2C6B3F42D63, 0xF2898D31B427B006, 0x6E62CE39598B1A64],
    ),
    (
        {"block_size": 4, "mm": [("image", 0, 2), (IMAGE, 2, 1), ("image", 3, 1)]},
        [0, 1, 2, 3, 4, 5, 6, 7],
        [0xC973FAB8EF026205, 0xA8416CFD935BDB13],
        [0xC973FAB8EF026205, 0xCE8A7D15059029FF],
    ),
    (
        {"block_size": 4, "pairs": True},
        [1, 2, 3, 4, 5, 6, 7, 8, 9],
        [0x1A92FFA9004C0851, 0x1AC55A72D61806E3],
        [0x1A92FFA9004C0851, 0xB64E31BE06D3E9DD],
    ),
    (
        {
            "block_size": 4,
            "lora_name": "adapter",
            "cache_salt": "tenant",
            "pairs": True,
        },
        [1, 2, 3, 4, 5, 6, 7, 8, 9],
        [0xDED13AB28570471F, 0x91269B22C4355C57],
        [0xDED13AB28570471F, 0x7345674835027BD6],
    ),
]

# A namespace and the seed of its local keys.
SEEDS = [
    ("", "", 0x539),
    ("adapter", "", 0xDCF577BC7589CC16),
    ("", "tenant", 0x4B1CBD8284D4D94D),
    ("adapter", "tenant", 0x2812353EFA5EA02A),
    ("x", "x", 0x9643DDADEA6301BE),
]

# A multimodal identifier and its hash.
IMAGES = [
    (IMAGE, 0x123456789ABCDEF),
    (IMAGE.upper(), 0x123456789ABCDEF),
    ("image", 0x4F8CB17EAF664C63),
    ("0123456789abcdef", 0x64439946D8FA212D),
    ("f" * 63, 0x50B391CBD6BE9481),
    ("g" * 64, 0x9FA4743AA6B2B30C),
]


@pytest.mark.parametrize(("options", "text", "local", "chain"), GOLDEN)
def test_golden_keys_are_reproduced(
    options: dict[str, Any], text: list[int], local: list[int], chain: list[int]
) -> None:
    keys = kvindex.block_keys(text, **options)
    assert list(keys) == local
    assert list(kvindex.chain_keys(keys)) == chain


@pytest.mark.parametrize(("options", "text", "local", "chain"), GOLDEN)
def test_golden_table_is_what_xxhash_says(
    options: dict[str, Any], text: list[int], local: list[int], chain: list[int]
) -> None:
    assert hashing.local_keys(text, **options) == local
    assert hashing.chain(local) == chain


@pytest.mark.parametrize(("lora_name", "cache_salt", "seed"), SEEDS)
def test_namespace_seed_is_what_the_table_says(
    lora_name: str, cache_salt: str, seed: int
) -> None:
    assert hashing.namespace_seed(lora_name, cache_salt) == seed
    keys = kvindex.block_keys(
        [1, 2, 3, 4], block_size=4, lora_name=lora_name, cache_salt=cache_salt
    )
    assert list(keys) == [hashing.local_key([1, 2, 3, 4], seed=seed)]


@pytest.mark.parametrize(("identifier", "digest"), IMAGES)
def test_image_hash_is_what_the_table_says(identifier: str, digest: int) -> None:
    assert hashing.image_hash(identifier) == digest
    keys = kvindex.block_keys([1, 2, 3, 4], block_size=4, mm=[(identifier, 0, 4)])
    assert list(keys) == [hashing.local_key([1, 2, 3, 4], [digest])]


def random_mm(rng: random.Random, length: int) -> list[tuple[str, int, int]]:
    identifiers = [HEX["a"], HEX["b"], IMAGE, "image", "caf\u00e9", "f" * 63]
    return [
        (rng.choice(identifiers), rng.randrange(length + 1), rng.randint(1, 40))
        for _ in range(rng.choice([0, 0, 1, 3]))
    ]


@pytest.mark.parametrize("seed", range(40))
def test_random_prompts_have_the_keys_that_xxhash_says(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(25):
        length = rng.randrange(200)
        text = [
            rng.choice([0, 1, 2**32 - 1, rng.getrandbits(32)]) for _ in range(length)
        ]
        options: dict[str, Any] = {
            "block_size": rng.choice([1, 2, 3, 4, 16, 64]),
            "lora_name": rng.choice(["", "x", "adapter/\u00fc", "long" * 100]),
            "cache_salt": rng.choice(["", "s", "tenant-7"]),
            "mm": random_mm(rng, length),
        }
        local = hashing.local_keys(text, **options)
        assert list(kvindex.block_keys(text, **options)) == local
        assert list(kvindex.chain_keys(local)) == hashing.chain(local)


@pytest.mark.parametrize("seed", range(10))
def test_random_pairs_have_the_keys_that_xxhash_says(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(25):
        text = [rng.getrandbits(17) for _ in range(rng.randrange(100))]
        options: dict[str, Any] = {
            "block_size": rng.choice([1, 4, 16]),
            "lora_name": rng.choice(["", "x"]),
            "cache_salt": rng.choice(["", "s"]),
            "pairs": True,
        }
        local = hashing.local_keys(text, **options)
        assert list(kvindex.block_keys(text, **options)) == local


def test_a_long_prompt_is_hashed_as_its_slices() -> None:
    text: Any = np.random.default_rng(1).integers(0, 2**32, 100_000, dtype=np.uint32)
    local = hashing.local_keys(text.tolist(), block_size=16)
    keys = kvindex.block_keys(text, block_size=16)
    assert list(keys) == local
    assert list(kvindex.chain_keys(keys)) == hashing.chain(local)


def test_a_block_larger_than_any_buffer_is_hashed_whole() -> None:
    text: Any = np.arange(2**20, dtype=np.uint32)
    assert list(kvindex.block_keys(text, block_size=2**20)) == [
        hashing.local_key(text.tolist())
    ]


def test_no_name_and_the_empty_name_are_the_same_namespace() -> None:
    plain = list(kvindex.block_keys([1, 2, 3, 4], block_size=4))
    spellings: tuple[dict[str, Any], ...] = (
        {"lora_name": "", "cache_salt": ""},
        {"lora_name": None, "cache_salt": None},
        {"mm": []},
        {"mm": None},
    )
    for options in spellings:
        assert list(kvindex.block_keys([1, 2, 3, 4], block_size=4, **options)) == plain


def test_adapter_and_salt_of_one_name_are_different_namespaces() -> None:
    by_lora = kvindex.block_keys([1, 2], block_size=2, lora_name="x")
    by_salt = kvindex.block_keys([1, 2], block_size=2, cache_salt="x")
    assert list(by_lora) != list(by_salt)


def test_images_count_once_per_occurrence_and_in_any_order() -> None:
    def keys(*mm: tuple[str, int, int]) -> list[int]:
        return list(kvindex.block_keys(range(8), block_size=8, mm=list(mm)))

    first, second = (HEX["a"], 0, 2), (HEX["b"], 4, 2)
    assert keys(first, second) == keys(second, first)
    assert keys(first, first) != keys(first)
    assert keys(first) == keys((HEX["a"], 5, 3))


def test_an_image_belongs_to_every_block_that_it_touches() -> None:
    plain = list(kvindex.block_keys(range(20), block_size=4))
    found = list(kvindex.block_keys(range(20), block_size=4, mm=[(HEX["a"], 7, 6)]))
    assert [a == b for a, b in zip(plain, found, strict=True)] == [
        True,
        False,
        False,
        False,
        True,
    ]


def test_a_trailing_partial_block_has_no_key() -> None:
    assert len(kvindex.block_keys(range(11), block_size=4)) == 2
    assert len(kvindex.block_keys(range(3), block_size=4)) == 0
    assert len(kvindex.block_keys([], block_size=4)) == 0
    assert len(kvindex.block_keys(range(8), block_size=4, pairs=True)) == 1
    assert len(kvindex.block_keys(range(9), block_size=4, pairs=True)) == 2
    assert len(kvindex.chain_keys([])) == 0


def test_keys_are_columns_of_u64() -> None:
    for keys in (
        kvindex.block_keys(range(8), block_size=4),
        kvindex.chain_keys([1, 2**64 - 1]),
    ):
        assert isinstance(keys, memoryview)
        assert keys.format == "Q"
        assert np.asarray(keys).dtype == np.uint64
        assert np.asarray(keys).tolist() == list(keys)


def test_the_first_chain_key_is_the_first_local_key() -> None:
    assert list(kvindex.chain_keys([2**64 - 1])) == [2**64 - 1]
