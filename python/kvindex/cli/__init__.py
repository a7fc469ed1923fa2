"""The command `kvindex`."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

import kvindex
from kvindex.cli import replay

if TYPE_CHECKING:
    from collections.abc import Sequence

COMMANDS = (replay,)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; return 0, or 2 after saying what is wrong."""
    parser = argparse.ArgumentParser(
        prog="kvindex", description="An exact index of the KV caches of LLM workers."
    )
    parser.add_argument("--version", action="version", version=kvindex.__version__)
    commands = parser.add_subparsers(metavar="command", required=True)
    for command in COMMANDS:
        command.add(commands)
    given = parser.parse_args(arguments)
    try:
        return int(given.run(given))
    except (kvindex.KvIndexError, OSError) as error:
        print(f"kvindex: {error}", file=sys.stderr)  # noqa: T201 - a command talks
        return 2
