"""What the bench in Python measures: the sections of its table."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Section:
    """Lines of one kind."""

    title: str
    unit: str


APPLY_GIVEN = Section("apply; the peer is given all hashes, as JSON", "blocks/s")
APPLY_SAME = Section("apply; both decode and hash", "blocks/s")
HASHING = Section("local keys of tokens; the peer is given lists", "tokens/s")

KEYS = Section("match by local keys, from a buffer; the peer from a list", "ns")
TOKENS = Section("match by tokens, from a buffer; the peer from a list", "ns")
LISTS = Section("match from lists on both sides", "ns")
BEST = Section("match by local keys and name the best worker", "ns")

CLOCK = Section("an empty Python call timed singly, as latencies are", "ns")
PARTS = Section("where a match's time goes: numpy arrays in, 64 blocks", "ns")
INPUT = Section("match by tokens, by the form of the input, 64 holders", "ns")
MANY = Section(
    "64 blocks held by 64, one call or many in one; the peer has no such form",
    "prompts/s",
)

THREADS = Section("prompts of several threads in total", "prompts/s")
PACED = Section("64 blocks by tokens beside a writer, paced", "ns")
BACK_TO_BACK = Section("64 blocks by tokens beside a writer, back to back", "ns")
WRITTEN = Section(
    "what that writer got through; the peer's is given all hashes", "blocks/s"
)

MEMORY = Section("memory a claim", "bytes")

ROUTER = Section("a decision over 256 workers, and its end", "ns")
SELECTOR = Section(
    "the same in turns with the peer's, which is given lists and cools the caches", "ns"
)
