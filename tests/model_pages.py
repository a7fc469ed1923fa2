"""What the model makes of pages that are smaller than a block.

A place inside of a block is the block above it and the contents of the pages up
to it. Who has copies of all pages of a block on one tier holds the block there.
"""

from dataclasses import dataclass
from typing import NamedTuple

from tests.model_read import (
    Anything,
    Block,
    Content,
    Group,
    Image,
    Name,
    Namespace,
    Page,
    Store,
    same_name,
)
from tests.model_state import Copy, Holder, State


class Part(NamedTuple):
    """What one page holds; an image goes with its start and its turn there."""

    namespace: Namespace
    tokens: tuple[int, ...]
    images: tuple[tuple[Image, int | None, int], ...]
    pairs: bool

    def length(self) -> int:
        """Return how many of the block's tokens it has."""
        return len(self.tokens) - self.pairs


class Inside(NamedTuple):
    """A place inside of a block, or at its end: behind some pages."""

    above: Block
    parts: tuple[Part, ...]

    def length(self) -> int:
        """Return how many tokens of the block are in front of it."""
        return sum(part.length() for part in self.parts)

    def block(self) -> Block:
        """Return the block that its pages make up."""
        last = self.parts[-1]
        tokens = [
            token for part in self.parts for token in part.tokens[: part.length()]
        ]
        images = {image for part in self.parts for image in part.images}
        whole = Content(
            last.namespace,
            (*tokens, *last.tokens[last.length() :]),
            tuple(sorted(what for what, _, _ in images)),
            last.pairs,
        )
        return (*self.above, whole)

    def pages(self) -> list["Inside"]:
        """Return the places behind each of its pages."""
        return [
            Inside(self.above, self.parts[:end])
            for end in range(1, len(self.parts) + 1)
        ]


@dataclass(frozen=True)
class Refused:
    """A place where nothing is stored, and why."""

    reason: str


AMBIGUOUS = Refused("ambiguous")  # a name that means blocks of several namespaces
MISFIT = Refused("block_size")  # inside of a block, where no hash of this size begins


@dataclass
class PageCopy:
    """A holder's copies of a page."""

    holder: Holder
    tier: str
    chunk: int
    name: Name
    place: Inside
    group: Group
    count: int = 1


def placed(page: Page, start: int, space: Namespace, *, pairs: bool) -> Part:
    """Return what a page holds that begins so many tokens into its block."""
    ((tokens, marked),) = page.blocks
    images: list[tuple[Image, int | None, int]] = []
    given: list[Anything] = list(marked)
    for what, offset, turn in given:
        images.append((what, None if offset is None else start + offset, turn))
    return Part(space, tokens, tuple(sorted(images, key=repr)), pairs)


def namespace_of(place: Block | Inside) -> Namespace:
    """Return the namespace of a block or a page."""
    last: Content | Part = place.parts[-1] if isinstance(place, Inside) else place[-1]
    return last.namespace


class Paged(State):
    """What is held, pages included."""

    def claims(self) -> list[Copy]:
        """Return the copies of blocks, and those that pages make up."""
        if not self.pages:
            return self.copies
        there = [(c.holder, c.tier, c.chunk, c.group, c.place) for c in self.pages]
        made = []
        for holder, tier, chunk, group, place in there:
            if place.length() == self.block_size and all(
                (holder, tier, chunk, group, page) in there for page in place.pages()
            ):
                block = place.block()
                made.append(Copy(holder, tier, 0, block, 1, chunk, group=group))
        return self.copies + made

    def is_held(self, place: Block | Inside) -> bool:
        """Return whether anybody holds a block or a page anywhere."""
        if isinstance(place, Inside):
            return any(copy.place == place for copy in self.pages)
        return any(copy.covers(place) for copy in self.claims())

    def own_pages(self, holder: Holder, name: Name) -> list[Inside]:
        """Return the pages that a holder holds under a name."""
        own: list[Inside] = []
        for copy in self.pages:
            if copy.holder == holder and same_name(copy.name, name):
                own += [copy.place] if copy.place not in own else []
        return own

    def claim_page(
        self, holder: Holder, store: Store, name: Name, place: Inside
    ) -> None:
        """Add a copy of a page."""
        tier, group = store.tier, store.group
        profile = self.profile(holder)
        chunk = profile.chunk_tokens.get(tier, 0) // self.block_size
        self.announced.append(name)
        for copy in self.pages:
            where = (copy.holder, copy.group, copy.tier, copy.chunk, copy.place)
            same = where == (holder, group, tier, chunk, place)
            if same and same_name(copy.name, name):
                copy.count += tier in profile.copies
                break
        else:
            self.pages.append(PageCopy(holder, tier, chunk, name, place, group))
        if (name, place) not in self.meanings:
            self.meanings.append((name, place))

    def take_pages(self, holder: Holder, group: object, tier: str, name: Name) -> bool:
        """Take one copy from each page of that name."""
        found = [
            copy
            for copy in self.pages
            if (copy.holder, copy.group, copy.tier) == (holder, group, tier)
            and same_name(copy.name, name)
        ]
        for copy in found:
            copy.count -= 1
        self.pages = [copy for copy in self.pages if copy.count]
        return bool(found)

    def whole(self, place: Block | Inside | Refused) -> Block | Refused:
        """Return the block that ends at a place, refused if none does."""
        if not isinstance(place, Inside):
            return place
        return place.block() if place.length() == self.block_size else MISFIT

    def namespace_below(
        self, holder: Holder, parent: Block | Inside, store: Store, page: Page
    ) -> Namespace:
        """Return the namespace of a hash below its parent."""
        lora, salt = store.lora, page.salt or store.salt
        if self.profile(holder).kind != "sglang":
            inherited: Namespace = namespace_of(parent) if parent else ("", "")
            lora, salt = lora or inherited[0], salt or inherited[1]
        return lora, salt

    def add_page(
        self, holder: Holder, parent: Block | Inside, store: Store, page: Page
    ) -> Inside | Refused:
        """Return the place behind a page that is smaller than a block."""
        space = self.namespace_below(holder, parent, store, page)
        if isinstance(parent, Inside) and parent.length() == self.block_size:
            parent = parent.block()
        before = parent if isinstance(parent, Inside) else Inside(parent, ())
        start = before.length()
        part = placed(page, start, space, pairs=store.pairs)
        last = before.parts[-1:]
        if last and (last[0].namespace, last[0].pairs) != (space, store.pairs):
            return AMBIGUOUS
        if start + store.page > self.block_size:
            return MISFIT
        return Inside(before.above, (*before.parts, part))
