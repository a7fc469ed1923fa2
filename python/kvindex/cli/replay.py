"""`kvindex replay`: what would each policy be worth on this trace?"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, TypeAlias

from kvindex.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvindex.replay import Fleet, Result, Trace

    # What add_subparsers returns has no public name.
    Commands: TypeAlias = Any

BAR = 30

FLEET = {
    "workers": (int, "engines"),
    "device_blocks": (int, "blocks of each GPU cache"),
    "host_blocks": (int, "blocks of each host memory, 0 for none"),
    "disk_blocks": (int, "blocks of each disk, 0 for none"),
    "prefill_speed": (float, "tokens a second that an engine computes"),
    "host_speed": (float, "tokens a second that it loads from host memory"),
    "disk_speed": (float, "tokens a second that it loads from disk"),
    "decode_speed": (float, "tokens a second of one answer"),
    "offload_delay": (float, "seconds until computed blocks are in host memory"),
    "event_delay": (float, "seconds until the router knows"),
    "event_loss": (float, "share of event batches that are lost, 0 to 1"),
}


def add(commands: Commands) -> None:
    """Add the command and its arguments."""
    parser = commands.add_parser(
        "replay",
        help="serve a trace by simulated engines, once for each policy",
        description=__doc__,
        epilog="A policy is a name and settings: cost:host=0.5,scale=10",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("trace", nargs="?", type=Path, help="JSON lines of requests")
    made = parser.add_argument_group("instead of a trace")
    made.add_argument("--generate", metavar="SHAPE", help="chat, agent, rag or batch")
    made.add_argument("--rate", type=float, default=4.0, help="requests a second")
    parser.add_argument("--requests", type=int, help="only so many of them")
    parser.add_argument(
        "--speed", type=float, default=1.0, help="arrive so much faster"
    )
    parser.add_argument("--seed", type=int, default=0, help="of all chance")
    parser.add_argument(
        "--policy",
        action="append",
        metavar="POLICY",
        help="once for each policy; a set that compares them if not given",
    )
    fleet = parser.add_argument_group("fleet")
    for name, (kind, told) in FLEET.items():
        option = f"--{name.replace('_', '-')}"
        fleet.add_argument(option, type=kind, help=told, default=argparse.SUPPRESS)
    out = parser.add_argument_group("results")
    out.add_argument("--json", type=Path, help="write the table as JSON lines, too")
    out.add_argument("--plots", type=Path, help="write a page and plots to a folder")
    parser.set_defaults(run=run)


def run(given: argparse.Namespace) -> int:
    """Replay the trace by each policy, then print a table."""
    # Only this command needs numpy.
    from kvindex.replay import DEFAULT_POLICIES, Fleet, policy, simulate  # noqa: PLC0415
    from kvindex.replay.table import render  # noqa: PLC0415

    settings = {
        setting.name: getattr(given, setting.name)
        for setting in fields(Fleet)
        if hasattr(given, setting.name)
    }
    fleet = Fleet(**settings)
    policies = [policy(text) for text in given.policy or DEFAULT_POLICIES]
    trace = requested(given)
    results = []
    for named in policies:
        bar = progress(named.label, sys.stderr)
        results.append(simulate(trace, fleet, named, seed=given.seed, progress=bar))
    print(render(trace, fleet, results))  # noqa: T201 - a command talks
    if given.json is not None:
        lines = [json.dumps(asdict(result.summary())) for result in results]
        given.json.write_text("".join(f"{line}\n" for line in lines))
    if given.plots is not None:
        draw(given.plots, trace, fleet, results)
    return 0


def requested(given: argparse.Namespace) -> Trace:
    """Return the trace that is asked for."""
    from kvindex.replay import generate, read  # noqa: PLC0415

    if (given.trace is None) == (given.generate is None):
        msg = "give either a trace or --generate SHAPE"
        raise ConfigError(msg)
    if given.trace is not None:
        trace = read(given.trace)
    else:
        count = 10_000 if given.requests is None else given.requests
        trace = generate(
            given.generate, requests=count, rate=given.rate, seed=given.seed
        )
    if given.requests is not None:
        trace = trace.first(given.requests)
    return trace.faster(given.speed)


def draw(folder: Path, trace: Trace, fleet: Fleet, results: list[Result]) -> None:
    """Write the page, or say what is missing."""
    from kvindex.replay.plots import write  # noqa: PLC0415

    try:
        page = write(folder, trace, fleet, results)
    except ImportError as error:
        msg = f"plots need matplotlib: pip install 'kvindex[cli]' ({error})"
        raise ConfigError(msg) from error
    print(f"plots: {page}")  # noqa: T201 - a command talks


def progress(label: str, to: TextIO) -> Callable[[int, int], None] | None:
    """Return what draws a bar, None where nobody looks at one."""
    if not to.isatty():
        return None

    def show(done: int, total: int) -> None:
        full = BAR * done // max(1, total)
        bar = "#" * full + "." * (BAR - full)
        to.write(f"\r[{bar}] {done:,} of {total:,}  {label}\033[K")
        if done == total:
            to.write("\r\033[K")
        to.flush()

    return show
