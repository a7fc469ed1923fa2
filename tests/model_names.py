"""What names mean, to the model: one look through the list of all meanings."""

from tests.model_pages import AMBIGUOUS, Inside, Paged, Refused, namespace_of
from tests.model_read import Block, Name, Store, same_name
from tests.model_state import Holder

ROOT: Block = ()


class Names(Paged):
    """The names of blocks and pages."""

    def meaning(
        self, holder: Holder, name: Name, lora: str, salt: str
    ) -> Block | Inside | Refused | None:
        """Return the block or page that a name means to a holder, None if unknown."""
        pages: list[Block | Inside] = [*self.own_pages(holder, name)]
        own = pages or [*self.own_meanings(holder, name)]
        if len(own) == 1:
            return own[0]
        agreeing = [block for block in own if self.agrees(holder, block, lora, salt)]
        if len({namespace_of(block) for block in agreeing}) > 1:
            return AMBIGUOUS
        if agreeing:
            return max(agreeing, key=lambda block: self.age(name, block))
        if own or self.profile(holder).names == "own":
            return None
        anyones = [block for known, block in self.meanings if same_name(known, name)]
        anyones.sort(key=lambda block: isinstance(block, Inside))
        return next(iter(anyones), None)

    def own_meanings(self, holder: Holder, name: Name) -> list[Block]:
        """Return the blocks that a holder holds under a name."""
        own: list[Block] = []
        for copy in self.copies:
            if copy.holder == holder and same_name(copy.name, name):
                own += [copy.block] if copy.block not in own else []
        return own

    def agrees(
        self, holder: Holder, block: Block | Inside, lora: str, salt: str
    ) -> bool:
        """Return whether a block lies in the namespace that an event gives."""
        block_lora, block_salt = namespace_of(block)
        if self.profile(holder).kind == "sglang":
            return (block_lora, block_salt) == (lora, salt)
        return lora in ("", block_lora) and salt in ("", block_salt)

    def age(self, name: Name, block: Block | Inside) -> int:
        """Return when a name came to mean a block: larger is newer."""
        for position, (known, known_block) in enumerate(self.meanings):
            if known_block == block and same_name(known, name):
                return position
        return -1

    def parent(self, holder: Holder, store: Store) -> Block | Inside | Refused | None:
        """Return the block below which a store begins."""
        root = self.profile(holder).root_hash
        if store.parent is None or (root is not None and same_name(root, store.parent)):
            return ROOT
        return self.meaning(holder, store.parent, store.lora, store.first_salt)

    def forget_dead_names(self) -> None:
        """Drop the names of blocks that nobody holds."""
        self.meanings = [
            (name, block) for name, block in self.meanings if self.is_held(block)
        ]
