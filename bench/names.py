"""What the cells and workloads of the bench in Rust are called for a reader."""

from bench.figures import KVINDEX

# The subject and the workload of what the machine itself takes.
MACHINE = "machine"

WORDS = {
    "agentic": "sessions that grow, fork and are trimmed",
    "busy_writer": "what that writer got through",
    "bytes_per_block": "bytes a distinct block",
    "bytes_per_claim": "bytes a claim",
    "chain_key": "a chain key, each waits for the one before",
    "clock": "the clock, which is part of every latency",
    "copy": "copying more than the caches hold",
    "dependent_load": "a load that waits for the one before",
    "hash_16_tokens": "the local key of a block of 16 tokens",
    "machine": "the machine itself",
    "match_64x512": "match, 512 blocks held by 64",
    "match_64x78": "match, 78 blocks held by 64",
    "match_fanout": "match, a prompt that every worker holds",
    "match_half": "match, leaves the held prefix half way",
    "match_miss": "match, nobody holds block 0",
    "match_next_turn": "match, a session's next turn",
    "match_one": "match, one holder",
    "match_one_cold": "match, one holder, cold",
    "own-names": "engine hashes of each worker's own",
    "remove_inner": "remove from the middle",
    "wrong": "wrong answers",
    "wrong_too_few": "blocks too few, at worst",
    "wrong_too_many": "blocks too many, at worst",
}
# In which ways kvindex is used besides the usual one.
WAYS = {
    "copies": "kvindex (copies) counts copies, as for the engines that announce each.",
    "locals": "kvindex (locals) is asked by local keys, which it chains on the way.",
}
BUSY = "busy_"


def words(name: str) -> str:
    """Write a name that a program gave as words."""
    if name in WORDS:
        return WORDS[name]
    if name.startswith(BUSY):
        return f"{words(name.removeprefix(BUSY))}, beside a writer"
    return name.replace("_", " ").replace("-", " ")


def at(cell: str, x: float) -> str:
    """Write a cell at a place of its series."""
    where = f"in {x / 2**20:,.4g} MiB" if cell == "dependent_load" else f"at {x:,.0f}"
    return f"{words(cell)} {where}"


def subject(name: str) -> str:
    """Write a subject: kvindex used in another way says in which."""
    base, _, way = name.partition("-")
    return f"{base} ({words(way)})" if base == KVINDEX and way else name
