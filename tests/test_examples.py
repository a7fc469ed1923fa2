"""The examples run, and the demo fails when an answer is wrong."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from examples import demo, quickstart, router


def test_quickstart_routes_to_the_deeper_worker(
    capsys: pytest.CaptureFixture[str],
) -> None:
    quickstart.main()
    assert capsys.readouterr().out.splitlines() == [
        "w0: 6 of 8 blocks (4 on the GPU, 2 in host memory), score 5.5",
        "w1: 5 of 8 blocks (5 on the GPU, 0 in host memory), score 5.0",
        "route to w0",
    ]


def test_demo_gets_every_answer_right(capsys: pytest.CaptureFixture[str]) -> None:
    assert demo.main(["--fast"]) == 0
    assert "400 of 400 exact" in capsys.readouterr().out


def test_demo_fails_when_the_engine_holds_something_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(demo, "truth_of", lambda *_: [])
    assert demo.main(["--fast"]) == 1


def test_router_sends_talks_back_to_where_their_prefix_is(
    capsys: pytest.CaptureFixture[str],
) -> None:
    router.main()
    lines = capsys.readouterr().out.splitlines()
    turns = [lines[at + 1 : at + 1 + router.USERS] for at in range(0, len(lines), 5)]
    workers = [[line.partition(":")[0] for line in turn] for turn in turns]
    assert sorted(workers[0]) == ["w0", "w0", "w1", "w1"]
    assert workers == [workers[0]] * router.TURNS
    assert [[line.split()[1] for line in turn] for turn in turns[1:]] == [
        ["12"] * router.USERS,
        ["14"] * router.USERS,
    ]


def test_the_router_of_the_readme_is_the_one_that_the_example_runs() -> None:
    readme = Path(__file__).parents[1].joinpath("README.md").read_text()
    block = readme.partition("from kvindex.policy import Router\n")[2]
    wanted = block.partition("```")[0].split("\n\n\n")[1]
    source = inspect.getsource(router.serve).splitlines()
    told = {line.strip() for line in source}
    for line in wanted.strip().splitlines()[1:]:
        assert line.strip() in told
