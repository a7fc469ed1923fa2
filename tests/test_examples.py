"""The examples run, and the demo fails when an answer is wrong."""

from __future__ import annotations

import pytest

from examples import demo, quickstart


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
