"""Make seeds for the fuzz targets that read payloads, from the captured streams.

    python -m tests.fuzz_seeds FOLDER

Of each stream the smallest batches that store, remove and clear blocks. The target
`wire` takes one byte more, which chooses how the payload is read.
"""

import hashlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.streams import load, names_of

TYPES = re.compile(rb"BlockStored|BlockRemoved|AllBlocksCleared")
LARGEST = 1500
# A block size of 1 to 4 (its lowest two bits, from 0), and two profiles of seven.
CHOICES = (3, 0, 39, 66)


def payloads() -> Iterator[bytes]:
    """Yield the smallest payload of each stream and kind of content."""
    for family in ("vllm", "sglang"):
        for name in names_of(family):
            smallest: dict[frozenset[bytes], bytes] = {}
            for message in load(family, name).messages:
                kinds = frozenset(TYPES.findall(message.payload))
                known = smallest.setdefault(kinds, message.payload)
                if len(message.payload) < len(known):
                    smallest[kinds] = message.payload
            yield from smallest.values()


def write(folder: Path, content: bytes) -> None:
    """Write a seed under the name that the fuzzer would give it."""
    name = hashlib.sha1(content, usedforsecurity=False).hexdigest()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(content)


def main() -> None:
    """Run from a command line."""
    folder = Path(sys.argv[1])
    for number, payload in enumerate(payloads()):
        if len(payload) <= LARGEST:
            write(folder / "decode", payload)
            write(folder / "wire", bytes([CHOICES[number % len(CHOICES)]]) + payload)


if __name__ == "__main__":
    main()
