"""The board: what is shown, to whom, and when."""

import threading

from kvindex.feeds import Source, SourceState
from kvindex.feeds.board import Board
from kvindex.feeds.state import resting

SOURCE = Source("w1", "tcp://127.0.0.1:1")
NEW = resting(SOURCE, "new")
LIVE = resting(SOURCE, "live")


def test_a_source_is_put_up_once() -> None:
    board = Board()
    assert board.put(NEW)
    assert not board.put(LIVE)
    assert board.states() == [NEW]


def test_a_source_that_was_taken_off_is_not_shown_again() -> None:
    board = Board()
    board.put(NEW)
    board.show(LIVE)
    assert board.states() == [LIVE]
    board.take(SOURCE.key)
    board.show(LIVE)
    assert board.states() == []


def test_who_waits_is_told_of_each_change() -> None:
    board = Board()
    board.put(NEW)
    looked = threading.Event()
    answers: list[bool] = []

    def live(rows: list[SourceState]) -> bool:
        looked.set()
        return rows == [LIVE]

    def wait() -> None:
        answers.append(board.wait(live, 5.0))

    waiter = threading.Thread(target=wait)
    waiter.start()
    assert looked.wait(5.0)
    board.show(LIVE)
    board.tell()
    waiter.join(5.0)
    assert answers == [True]


def test_the_end_wakes_everybody_and_is_final() -> None:
    board = Board()
    board.put(NEW)
    board.end()
    assert board.ended
    assert not board.wait(lambda _: False, 60.0)
    assert board.wait(lambda rows: rows == [NEW], 60.0)
