"""What no sound engine sends: malice that is well formed, and faults that are not."""

from collections.abc import Sequence
from random import Random

from kvindex.events import AllBlocksCleared, BlockRemoved, BlockStored
from tests.episodes_engine import MEDIA, Chain, Engine, layout_of
from tests.model_read import (
    SALT_MARK,
    TIERS,
    Anything,
    Fields,
    Name,
    Unreadable,
    Wire,
    hashes_of,
    tokens_of,
)

ODD_MEDIA = ("TAPE", "moon", "MOON", "gpu ")
KINDS = ("full_attention", "mla_attention", "mamba", "sliding_window", "unknown")
EXTRA_KEYS = ("picture", b"clip", ["picture", 0], ["a1" * 32, -3], "s", "b2" * 32)


def malicious(
    random: Random, engine: Engine, chains: Sequence[Chain], names: list[Name]
) -> Wire:
    """Draw a well-formed event that fits nothing that was said before."""
    dice = random.random()
    if dice < 0.35:
        return odd_removal(random, engine, names)
    if dice < 0.4:
        return Wire(AllBlocksCleared(), None, {"note": 1})
    if dice < 0.6:
        return odd_placement(random, engine, names)
    return odd_store(random, engine, random.choice(chains), names)


def odd_removal(random: Random, engine: Engine, names: list[Name]) -> Wire:
    """Draw a removal of any names from any tier."""
    chosen = random.choices(names, k=random.randint(0, 4))
    wire = engine.removed(random, chosen, random.choice(TIERS), random.choice((0, 1)))
    if wire.fields is not None:
        return wire
    event = BlockRemoved(
        chosen,
        random.choice((*ODD_MEDIA, wire.event.medium)),
        random.choice((None, None, 0, 1)),
        random.choice((None, None, None, *KINDS)),
    )
    extra = {"locality": "REMOTE"} if random.random() < 0.1 else {}
    return Wire(event, None, extra, wire.spelling)


def odd_placement(random: Random, engine: Engine, names: list[Name]) -> Wire:
    """Draw a token-less store of any names."""
    event = BlockStored(
        random.choices(names, k=random.randint(1, 3)),
        [],
        block_size=random.choice((None, 0, 1, engine.block_size * 3)),
        medium=random.choice((*ODD_MEDIA[:2], *MEDIA["host"], *MEDIA["device"])),
        lora_name=random.choice((None, None, "x", "y")),
        group_idx=random.choice((None, None, 0, 1)),
        kv_cache_spec_kind=random.choice((None, None, None, *KINDS)),
    )
    if random.random() < 0.2:
        event = changed(event, cache_salt=random.choice(("s", "x")))
    return in_layout(random, engine, event)


def odd_store(random: Random, engine: Engine, chain: Chain, names: list[Name]) -> Wire:
    """Draw a store that differs from a sound one in a few fields."""
    blocks = (len(chain.tokens) - 1) // engine.block_size
    first = random.randint(0, blocks - 1)
    last = random.randint(first + 1, min(blocks, first + 3))
    tier = random.choice(TIERS)
    event = engine.stored(random, chain, first, last, tier).event
    engine.residents = engine.residents[: -(last - first)]
    hashes = hashes_of(event)
    if random.random() < 0.5:
        hashes[random.randrange(len(hashes))] = random.choice(names)
    others = {
        "parent_block_hash": random.choice((None, 0, *names)),
        "medium": random.choice((*ODD_MEDIA, *MEDIA["device"], *MEDIA["host"])),
        "lora_name": random.choice(("", "x", "y")),
        "cache_salt": random.choice(("", "s", "x")),
        "lora_id": random.choice((1, 2)),
        "group_idx": random.choice((0, 1, 2)),
        "kv_cache_spec_kind": random.choice(KINDS),
        "extra_keys": [extra_keys(random) for _ in hashes],
        "locality": random.choice(("LOCAL", "REMOTE")),
        "block_size": random.choice((None, 1, 3, engine.block_size)),
    }
    chosen = random.sample(sorted(others), random.randint(0, 2))
    given = {name: others[name] for name in chosen}
    return in_layout(random, engine, changed(event, block_hashes=hashes, **given))


def extra_keys(random: Random) -> list[Anything] | None:
    """Draw a block's extra keys: images, digests, salts, or nothing."""
    keys: list[Anything] = random.choices(EXTRA_KEYS, k=random.choice((0, 0, 1, 2)))
    if random.random() < 0.2:
        keys.insert(random.randint(0, len(keys)), SALT_MARK + "s")
    return keys or random.choice((None, []))


def faulty(random: Random, engine: Engine, chain: Chain) -> Wire:
    """Draw an event that is wrong in its shape."""
    blocks = (len(chain.tokens) - 1) // engine.block_size
    wire = engine.stored(random, chain, 0, random.randint(1, blocks), "device")
    event = wire.event
    hashes, tokens = hashes_of(event), tokens_of(event)
    cut = random.randint(1, engine.block_size)
    more_keys = event.extra_keys and [*event.extra_keys, None]
    wrong: Fields = random.choice(
        (
            {"token_ids": tokens[:-cut]},
            {"block_hashes": [*hashes, 99], "extra_keys": more_keys},
            {"parent_block_hash": hashes[-1]},
            {"block_hashes": hashes[:1] * 2},
            {"extra_keys": []},
            {"extra_keys": [None] * (len(hashes) + 1)},
            {"extra_keys": [[7]] * len(hashes)},
            {"extra_keys": "s"},
        )
    )
    dice = random.random()
    if dice < 0.5:
        return in_layout(random, engine, changed(event, **wrong))
    if dice < 0.6:
        return partial(random, engine, chain)
    if dice < 0.7:
        return odd_size(random, engine, event)
    if dice < 0.8:
        value = random.choice((["Renamed", [1]], {"type": "Renamed", "n": [1]}))
        return Wire(Unreadable("unknown_type", value))
    return malformed(random, event)


def odd_size(random: Random, engine: Engine, event: BlockStored) -> Wire:
    """Draw a store of pages that are smaller than a block or no multiple of it."""
    size = random.choice((1, engine.block_size + 1))
    tokens = (tokens_of(event) * 3)[: len(hashes_of(event)) * size]
    if engine.pairs:
        tokens = [[1, 1]] * (len(hashes_of(event)) * size)
    event = changed(event, token_ids=tokens, block_size=size)
    return in_layout(random, engine, event)


def partial(random: Random, engine: Engine, chain: Chain) -> Wire:
    """Draw a store whose last block is not full."""
    blocks = (len(chain.tokens) - 1) // engine.block_size
    event = engine.stored(random, chain, 0, blocks, "device").event
    hashes = [*event.block_hashes, 98]
    tokens = [*event.token_ids, event.token_ids[-1]]
    if engine.pairs:
        tokens = [*event.token_ids, [event.token_ids[-1][1], 1]]
    keys = event.extra_keys and [*event.extra_keys, None]
    event = changed(event, block_hashes=hashes, token_ids=tokens, extra_keys=keys)
    return in_layout(random, engine, event)


def malformed(random: Random, event: BlockStored) -> Wire:
    """Draw an event with a field of the wrong type or range."""
    given = {
        "type": "BlockStored",
        "block_hashes": event.block_hashes,
        "parent_block_hash": None,
        "token_ids": event.token_ids,
        "block_size": event.block_size,
    }
    wrong = random.choice(
        (
            {"block_hashes": "ab"},
            {"block_hashes": None},
            {"block_hashes": [1.5]},
            {"block_hashes": ["ab"] * len(hashes_of(event))},
            {"parent_block_hash": 1.5},
            {"parent_block_hash": [1]},
            {"token_ids": "ab"},
            {"token_ids": [*tokens_of(event)[:-1], 2**32]},
            {"token_ids": [*tokens_of(event)[:-1], -1]},
            {"token_ids": [*tokens_of(event)[:-1], "1"]},
            {"token_ids": [*tokens_of(event)[:-1], [1, 2, 3]]},
            {"token_ids": [[1, 2], [3, 4]]},
            {"block_size": "16"},
            {"block_size": -1},
            {"medium": 5},
            {"lora_name": 7},
            {"lora_id": "x"},
            {"cache_salt": 1},
            {"group_idx": "0"},
            {"group_idx": -1},
            {"kv_cache_spec_kind": 3},
            {"locality": 2},
            {"type": 4},
            {"type": "BlockRemoved", "block_hashes": 3},
            {"type": "BlockRemoved", "medium": 3},
        )
    )
    value: object = given | wrong
    if random.random() < 0.2:
        array: list[object] = [
            "BlockStored",
            [1],
            None,
            [1, 2],
            event.block_size,
            None,
            "GPU",
            None,
        ]
        wrong_item = random.choice(((1, 2), (2, "p"), (3, ["t"]), (4, "2"), (6, 1)))
        array[wrong_item[0]] = wrong_item[1]
        value = random.choice((array, array[:1], array[:2], [], [5], 5, None))
    return Wire(Unreadable("malformed", value))


def changed(event: BlockStored, **given: Anything) -> BlockStored:
    """Return a store with some fields replaced."""
    fields = {name: getattr(event, name) for name in BlockStored.__dataclass_fields__}
    return BlockStored(**fields | given)


def in_layout(random: Random, engine: Engine, event: BlockStored) -> Wire:
    """Write a store as the engine would, or as a map where it cannot."""
    layout = engine.layout if random.random() < 0.6 else "vllm"
    fields, given = layout_of(layout, event)
    return Wire(BlockStored(**given), fields, {}, random.randrange(1000))
