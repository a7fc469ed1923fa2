"""Check the rules for files that no linter knows.

No source, document or recipe is longer than 600 lines, and Rust and TOML files
are ASCII. Captured streams and lock files are data and may be longer.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[1]
MAX_LINES = 600
TEXT = {".md", ".py", ".pyi", ".rs", ".toml", ".yml", ".yaml", ".sh"}
ASCII_ONLY = {".rs", ".toml"}
NOT_OURS = {".git", ".venv", "target", "dist", "__pycache__"}


def sources(folder: Path) -> Iterator[Path]:
    """Yield the text files of the project below a folder."""
    for path in sorted(folder.iterdir()):
        if path.is_dir():
            is_cache = path.name.startswith(".") and path.name.endswith("_cache")
            if path.name not in NOT_OURS and not is_cache:
                yield from sources(path)
        elif path.suffix in TEXT or path.name in {"Makefile", "run"}:
            yield path


def faults(path: Path) -> Iterator[str]:
    """Yield what is wrong with one file."""
    text = path.read_bytes().decode()
    lines = text.count("\n")
    if lines > MAX_LINES:
        yield f"{lines} lines, more than {MAX_LINES}"
    if path.suffix in ASCII_ONLY and not text.isascii():
        bad = next(
            number
            for number, line in enumerate(text.splitlines(), 1)
            if not line.isascii()
        )
        yield f"line {bad} is not ASCII"


def main() -> int:
    """Report every fault; return 1 if there is one."""
    checked = 0
    found = 0
    for path in sources(ROOT):
        checked += 1
        for fault in faults(path):
            found += 1
            print(f"{path.relative_to(ROOT)}: {fault}")
    print(f"{checked} files checked, {found} faults")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
