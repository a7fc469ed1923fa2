"""What one event says, read on its own: the model's view before any state.

A `Wire` is an event together with how it was written, because some layouts
mean less than others. Everything here is the contract written out; nothing is
shared with the index.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias, cast

from kvindex.events import AllBlocksCleared, BlockRemoved, BlockStored

TIERS = ("device", "host", "disk", "external")
MEDIA = {
    "gpu": "device",
    "device": "device",
    "cpu": "host",
    "cpu_pinned": "host",
    "cpu_tier1": "host",
    "cpu_tier2": "disk",
    "disk": "disk",
    "nvme": "disk",
    "ssd": "disk",
    "storage": "disk",
    "external": "external",
    "network": "external",
    "remote": "external",
    "shared": "external",
}
FULL_KINDS = ("full_attention", "mla_attention", "sink_full_attention")
SALT_MARK = "dynamo-cache-salt:"
HEX_DIGITS = frozenset("0123456789abcdefABCDEF")

# What tests pass on without looking, or make wrong on purpose.
Anything: TypeAlias = Any
Fields: TypeAlias = dict[str, Any]

Name = int | bytes
Group = int | str | None  # a cache group's number, or MAIN
MAIN = "main"
Namespace = tuple[str, str]  # LoRA name, cache salt; empty = none
Image = tuple[str, object]


class Content(NamedTuple):
    """What one block holds; a block is the tuple of the contents on its path."""

    namespace: Namespace
    tokens: tuple[int, ...]
    images: tuple[Image, ...]
    pairs: bool
    family: str = ""  # "flexkv", "sglang": the token is the name that it computes


Block = tuple[Content, ...]


def flexkv_content(name: int) -> Content:
    """Return a block that is nothing but its name."""
    return Content(("", ""), (name,), (), pairs=False, family="flexkv")


def sglang_content(name: int) -> Content:
    """Return a page that is the end of its digest, wherever it lies in a prefix."""
    return Content(("", ""), (name,), (), pairs=False, family="sglang")


@dataclass(frozen=True)
class Unreadable:
    """An event that cannot be read: the reason, and what stands on the wire."""

    reason: str
    value: object


Event = BlockStored | BlockRemoved | AllBlocksCleared | Unreadable


@dataclass(frozen=True)
class Wire:
    """An event and how it is written.

    `fields` is the number of items of a positional array with its tag; None
    means a map, which is also how event objects are read. `extra` holds map
    fields that the event classes do not have, and `spelling` chooses among
    the ways to write the same map.
    """

    event: Anything  # an Event; who reads it knows which
    fields: int | None = None
    extra: Fields = field(default_factory=dict)
    spelling: int = 0


@dataclass(frozen=True)
class Page:
    """One hash's worth of an event: one index block, or several for a unit."""

    blocks: tuple[tuple[tuple[int, ...], tuple[Image, ...]], ...]
    salt: str


@dataclass(frozen=True)
class Store:
    """A store that can be applied: all of it checked, tier and adapter known.

    `pages` are empty where there are no tokens, or not those of the names.
    """

    group: Group
    names: tuple[Name, ...]
    parent: Name | None
    tier: str
    lora: str
    salt: str
    first_salt: str  # of the first hash, where that has one of its own
    size: int
    pages: tuple[Page, ...]
    pairs: bool
    has_extra_keys: bool
    page: int = 0  # tokens a hash, where it is less than a block


def hashes_of(event: BlockStored | BlockRemoved) -> list[Name]:
    """Return an event's hashes."""
    return list(cast("Sequence[Name]", event.block_hashes))


def tokens_of(event: BlockStored) -> list[Any]:
    """Return a store's tokens or pairs, empty if it has none."""
    return list(cast("Sequence[Any]", event.token_ids or ()))


def low(name: Name) -> int:
    """Return the 64 bits by which integers and byte strings compare."""
    if isinstance(name, bytes):
        return int.from_bytes(name[-8:], "big")
    return name % 2**64


def same_name(one: Name, other: Name) -> bool:
    """Compare byte strings whole, and anything with an integer by 64 bits."""
    if isinstance(one, bytes) and isinstance(other, bytes):
        return one == other
    return low(one) == low(other)


def hash_count(event: Event) -> int:
    """Return how much an event counts: its hashes, or one if unreadable."""
    if isinstance(event, AllBlocksCleared):
        return 0
    if isinstance(event, BlockStored) and not tokens_are_readable(event):
        return 1
    return 1 if isinstance(event, Unreadable) else len(hashes_of(event))


def is_pairs(event: BlockStored) -> bool:
    """Return whether the tokens come as pairs."""
    tokens = tokens_of(event)
    return len(tokens) > 0 and not isinstance(tokens[0], int)


def structural_fault(event: BlockStored) -> str | None:
    """Return what is wrong with a store, tokens against hashes apart."""
    names = hashes_of(event)
    if not tokens_are_readable(event):
        return "malformed"
    if not extra_keys_are_readable(event):
        return "extra_keys"
    parent = event.parent_block_hash
    if parent is not None and any(same_name(parent, name) for name in names):
        return "parent"
    twice = any(
        same_name(one, other)
        for position, one in enumerate(names)
        for other in names[:position]
    )
    return "duplicate_hash" if event.token_ids and twice else None


def tokens_are_readable(event: BlockStored) -> bool:
    """Check the range of tokens, and that pairs overlap."""
    tokens = tokens_of(event)
    if not is_pairs(event):
        return all(isinstance(t, int) and 0 <= t < 2**32 for t in tokens)
    for position, pair in enumerate(tokens):
        if isinstance(pair, int) or len(pair) != 2:
            return False
        if not all(0 <= token < 2**32 for token in pair):
            return False
        if position and tokens[position - 1][1] != pair[0]:
            return False
    return True


def extra_keys_are_readable(event: BlockStored) -> bool:
    """Check that there is one list or nil per hash, of keys of known types."""
    keys = event.extra_keys
    if keys is None:
        return True
    if not isinstance(keys, list | tuple) or len(keys) != len(hashes_of(event)):
        return False
    for entry in keys:
        if entry is None:
            continue
        if not isinstance(entry, list | tuple):
            return False
        if not all(isinstance(key, str | bytes) or is_image_pair(key) for key in entry):
            return False
    return True


def is_image_pair(key: object) -> bool:
    """Return whether an extra key is `[identifier, offset]`."""
    return (
        isinstance(key, list | tuple)
        and len(key) == 2
        and isinstance(key[0], str)
        and isinstance(key[1], int)
    )


def tokens_fault(event: BlockStored, block_size: int) -> str | None:
    """Compare the number of tokens with the number of hashes."""
    tokens = len(tokens_of(event))
    if tokens == 0:
        return None
    names = len(hashes_of(event))
    if (names - 1) * block_size < tokens < names * block_size:
        return "partial"
    return None if tokens == names * block_size else "tokens"


def tier_of(event: Anything, extra: Fields, media: dict[str, str]) -> str:
    """Return the tier that an event names, empty if its medium is unknown."""
    locality = getattr(event, "locality", None) or extra.get("locality")
    if locality == "REMOTE":
        return "external"
    medium = event.medium
    if medium is None:
        return "device"
    return media.get(medium.lower()) or MEDIA.get(medium.lower(), "")


def image(identifier: str | bytes) -> Image:
    """Return what identifies an image: a digest's first half, or the text."""
    if isinstance(identifier, bytes):
        return ("text", identifier)
    if is_digest(identifier):
        return ("digest", int(identifier[:16], 16))
    return ("text", identifier.encode())


def is_digest(text: str) -> bool:
    """Return whether a text is 64 hex digits."""
    return len(text) == 64 and all(digit in HEX_DIGITS for digit in text)


def split_extra_keys(
    wire: Wire, position: int
) -> tuple[str, list[tuple[Image, int | None]]]:
    """Return one hash's salt and its images with their offsets."""
    event = wire.event
    keys = list((event.extra_keys or {position: None})[position] or ())
    if event.lora_name and event.lora_name in keys:
        keys.remove(event.lora_name)
    salt = salt_among(wire, position, [key for key in keys if isinstance(key, str)])
    if salt:
        # The last of equal strings is the salt, and a marked one the first.
        marked = salt.startswith(SALT_MARK)
        del keys[keys.index(salt) if marked else last_index(keys, salt)]
    images = [
        (image(key), None) if isinstance(key, str | bytes) else (image(key[0]), key[1])
        for key in keys
    ]
    return salt.removeprefix(SALT_MARK), images


def last_index(keys: Sequence[object], wanted: object) -> int:
    """Return the last position of an item."""
    return max(index for index, key in enumerate(keys) if key == wanted)


def salt_among(wire: Wire, position: int, texts: list[str]) -> str:
    """Return which of a hash's bare strings is the cache salt, empty if none."""
    if not texts:
        return ""
    marked = [text for text in texts if text.startswith(SALT_MARK)]
    salt = marked[0] if marked else texts[-1]
    if wire.fields is not None and wire.fields < 12:
        first_of_chain = position == 0 and wire.event.parent_block_hash is None
        if not first_of_chain or is_digest(salt):
            return ""
    return salt


def pages_of(wire: Wire, block_size: int, size: int) -> tuple[Page, ...]:
    """Cut a store's tokens into pages of `size` index blocks each."""
    event = wire.event
    tokens = tokens_of(event)
    count = len(tokens) // (block_size * size)
    pairs = is_pairs(event)
    if pairs:
        tokens = [first for first, _ in tokens] + [tokens[-1][1]]
    pages = []
    for position in range(count):
        salt, images = split_extra_keys(wire, position)
        blocks = []
        for part in range(size):
            start = (position * size + part) * block_size
            end = (part + 1) * block_size
            blocks.append(
                (
                    tuple(tokens[start : start + block_size + pairs]),
                    tuple(
                        sorted(
                            what
                            for what, offset in images
                            if size == 1 or offset is None or offset < end
                        )
                    ),
                )
            )
        pages.append(Page(tuple(blocks), salt))
    return tuple(pages)


def small_pages_of(wire: Wire, size: int) -> tuple[Page, ...]:
    """Cut a store's tokens into pages of `size` tokens, smaller than a block.

    Images come with their offsets in the page, and which of equal ones they are.
    """
    tokens = tokens_of(wire.event)
    count = len(tokens) // size
    pairs = is_pairs(wire.event)
    if pairs:
        tokens = [first for first, _ in tokens] + [tokens[-1][1]]
    pages = []
    for position in range(count):
        salt, images = split_extra_keys(wire, position)
        seen: list[tuple[Image, int | None]] = []
        marked: list[Any] = []
        for each in images:
            marked.append((*each, seen.count(each)))
            seen.append(each)
        own = tuple(tokens[position * size : (position + 1) * size + pairs])
        pages.append(Page(((own, tuple(marked)),), salt))
    return tuple(pages)


class FaultyEventError(Exception):
    """What `strict=True` raises: `event` is the position in the batch."""

    def __init__(self, event: int) -> None:
        """Remember which event it was."""
        super().__init__(f"event {event}")
        self.event = event


def raise_first_fault(batch: Sequence[Wire], block_size: int) -> None:
    """Look for faults that an event shows by itself, whatever came before it."""
    for position, wire in enumerate(batch):
        event = wire.event
        if isinstance(event, Unreadable):
            raise FaultyEventError(position)
        if not isinstance(event, BlockStored):
            continue
        fault = structural_fault(event)
        kind, group = event.kv_cache_spec_kind, event.group_idx
        # The tokens of other groups need not fit their hashes.
        if kind in FULL_KINDS or (kind is None and group in (None, 0)):
            size = block_size if event.block_size is None else event.block_size
            fault = fault or tokens_fault(event, size)
        if fault is not None:
            raise FaultyEventError(position)


def lower_keys(media: dict[str, str]) -> dict[str, str]:
    """Return a table of media by lower-case name."""
    return {medium.lower(): tier for medium, tier in media.items()}
