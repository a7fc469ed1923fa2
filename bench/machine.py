"""What were the figures measured on, and with which versions?"""

import os
import platform
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import kvindex
from bench.figures import KVINDEX, About
from bench.peer import PACKAGE, Peer

CPUINFO = Path("/proc/cpuinfo")


def about(peer: Peer | None, command: str) -> About:
    """Return the first line of a file of figures."""
    subjects = {KVINDEX: kvindex.__version__}
    if peer:
        subjects[PACKAGE] = version(PACKAGE)
    told: dict[str, Any] = {
        "machine": machine(),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "subjects": subjects,
        "command": command,
        "date": datetime.now(UTC).date().isoformat(),
    }
    return About(bench="python", about=told)


def machine() -> str:
    """Name the processor, the system, and how busy it was."""
    kind = f"{processor()}, {os.cpu_count()} CPUs, {platform.system()}"
    return (
        f"{kind}, load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else kind
    )


def processor() -> str:
    """Return the processor's name as far as the system tells it."""
    if CPUINFO.exists():
        for line in CPUINFO.read_text(encoding="utf-8").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    return platform.processor() or platform.machine()
