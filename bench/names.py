"""What the cells and workloads of the bench in Rust are called for a reader."""

from bench.figures import KVINDEX

WORDS = {
    "bytes_per_block": "bytes a distinct block",
    "bytes_per_claim": "bytes a claim",
    "busy_writer": "what that writer got through",
    "match_64x512": "match, 512 blocks held by 64",
    "match_64x78": "match, 78 blocks held by 64",
    "match_half": "match, leaves the held prefix half way",
    "match_miss": "match, nobody holds block 0",
    "match_one_cold": "match, one holder, cold",
    "wrong": "wrong answers",
}
BUSY = "busy_"


def words(name: str) -> str:
    """Write a name that a program gave as words."""
    if name in WORDS:
        return WORDS[name]
    if name.startswith(BUSY):
        return f"{words(name.removeprefix(BUSY))}, beside a writer"
    return name.replace("_", " ").replace("-", " ")


def subject(name: str) -> str:
    """Write a subject: kvindex used in another way says in which."""
    base, _, way = name.partition("-")
    return f"{base} ({words(way)})" if base == KVINDEX and way else name
