"""`kvindex replay` prints a table, and says what is wrong."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

import kvindex
from kvindex.cli import main
from kvindex.cli.replay import progress

if TYPE_CHECKING:
    from pathlib import Path

SMALL = ("replay", "--generate", "chat", "--requests", "60", "--workers", "2")


def test_a_line_for_each_policy(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    out = tmp_path / "table.jsonl"
    policies = ("--policy", "cost:host=0.5", "--policy", "random")
    assert main([*SMALL, *policies, "--json", str(out)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("chat-0: 60 requests in ")
    assert "; 2 engines of 1,000 + 4,000 + 0 blocks of 512 tokens" in lines[0]
    assert lines[2].split()[:2] == ["policy", "cached"]
    assert [line.split()[0] for line in lines[3:5]] == ["cost:host=0.5", "random"]
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert [row["policy"] for row in rows] == ["cost:host=0.5", "random"]
    assert f"{rows[0]['ttft_p50']:.2f}" == lines[3].split()[6]


def test_a_set_of_policies_is_compared_if_none_is_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(SMALL) == 0
    out = capsys.readouterr().out
    for label in ("cost:host=0 ", "cost:scale=10 ", "round-robin ", "random "):
        assert f"\n{label}" in out


def test_a_trace_is_read_and_cut_and_hurried(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    lines = [
        {"timestamp": at, "input_length": 600, "output_length": 1, "hash_ids": [at, 9]}
        for at in (0, 4_000, 8_000)
    ]
    path = tmp_path / "mine.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)))
    given = ["replay", str(path), "--requests", "2", "--speed", "2"]
    assert main([*given, "--policy", "cost"]) == 0
    assert capsys.readouterr().out.startswith("mine: 2 requests in 2 s")


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (["replay"], "give either a trace or --generate"),
        (["replay", "x", "--generate", "chat"], "give either a trace or --generate"),
        (["replay", "no-such-file"], "No such file"),
        ([*SMALL, "--policy", "best"], "policy is 'best'"),
        ([*SMALL, "--event-loss", "2"], "event_loss is 2"),
        ([*SMALL, "--device-blocks", "1"], "device_blocks, 1"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(
    capsys: pytest.CaptureFixture[str], given: list[str], told: str
) -> None:
    assert main(given) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert told in err
    assert err.startswith("kvindex: ")
    assert err.count("\n") == 1


def test_plots_are_a_page_and_pictures(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    folder = tmp_path / "plots"
    assert main([*SMALL, "--policy", "cost", "--plots", str(folder)]) == 0
    assert f"plots: {folder / 'index.html'}" in capsys.readouterr().out
    assert sorted(path.name for path in folder.iterdir()) == [
        "balance.png",
        "cached.png",
        "index.html",
        "ttft.png",
    ]
    page = (folder / "index.html").read_text()
    assert page.count("data:image/png;base64,") == 3
    assert "<td>cost</td>" in page


def test_without_matplotlib_plots_say_what_to_install(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delitem(sys.modules, "kvindex.replay.plots", raising=False)
    for name in ("matplotlib", "matplotlib.backends.backend_agg"):
        monkeypatch.setitem(sys.modules, name, None)
    assert main([*SMALL, "--policy", "random", "--plots", str(tmp_path)]) == 2
    assert "pip install 'kvindex[cli]'" in capsys.readouterr().err


class Terminal:
    """Something that is looked at."""

    def __init__(self, *, looked_at: bool) -> None:
        """Start empty."""
        self.text = ""
        self.looked_at = looked_at

    def isatty(self) -> bool:
        """Return whether somebody looks."""
        return self.looked_at

    def write(self, text: str) -> int:
        """Keep a text."""
        self.text += text
        return len(text)

    def flush(self) -> None:
        """Do nothing."""


def test_a_bar_grows_where_somebody_looks() -> None:
    terminal = Terminal(looked_at=True)
    show = progress("cost", terminal)  # type: ignore[arg-type]
    assert show is not None
    show(50, 100)
    assert terminal.text == f"\r[{'#' * 15}{'.' * 15}] 50 of 100  cost\033[K"
    show(100, 100)
    assert terminal.text.endswith("\r\033[K")
    assert progress("cost", Terminal(looked_at=False)) is None  # type: ignore[arg-type]


def test_the_module_is_the_command() -> None:
    result = subprocess.run(
        [sys.executable, "-m", "kvindex", "--version"],
        check=True,
        capture_output=True,
        text=True,
    )
    assert result.stdout == f"{kvindex.__version__}\n"
