"""How fast are tokens hashed?"""

from array import array
from functools import partial

import pytest

import kvindex
from bench.duel import Duel
from bench.peer import Peer
from bench.sections import HASHING
from bench.workload import BLOCK, Maker

TOKENS = 128 * 1024
ROUNDS = 100


@pytest.mark.parametrize("form", ["32-bit buffer", "64-bit buffer", "list"])
def test_hashing(duel: Duel, peer: Peer | None, form: str) -> None:
    buffer = Maker(5).tokens(TOKENS)
    listed = buffer.tolist()
    wide = array("q", listed)
    tokens = {"32-bit buffer": buffer, "64-bit buffer": wide, "list": listed}[form]
    ours = partial(kvindex.block_keys, tokens, block_size=BLOCK)
    theirs = [partial(peer.hash_tokens, listed, BLOCK)] if peer else []
    if theirs:
        assert list(ours()) == theirs[0]()
    duel.rate(HASHING, form, TOKENS, [ours] * ROUNDS, theirs * ROUNDS)
