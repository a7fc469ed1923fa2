"""Options of the sockets that no exchange on loopback would show."""

import zmq

from kvindex.feeds import Source
from kvindex.feeds.zmq import Replay, Subscription, new_context

NOBODY = "tcp://127.0.0.1:1"


def test_nothing_is_left_to_send_when_a_socket_is_closed() -> None:
    with new_context() as context:
        replay = Replay(context, NOBODY, 0)
        events = Subscription(context, Source("w1", NOBODY), hwm=10)
        assert replay.socket.linger == 0
        assert events.socket.linger == 0
        replay.close()
        events.close()


def test_a_replay_is_read_without_a_bound_and_events_with_one() -> None:
    with new_context() as context:
        replay = Replay(context, NOBODY, 0)
        events = Subscription(context, Source("w1", NOBODY), hwm=10)
        assert replay.socket.rcvhwm == 0
        assert events.socket.rcvhwm == 10
        replay.close()
        events.close()


def test_a_host_that_vanishes_is_noticed() -> None:
    with new_context() as context:
        events = Subscription(context, Source("w1", NOBODY), hwm=10)
        assert events.socket.get(zmq.HEARTBEAT_IVL) == 5_000
        assert events.socket.get(zmq.HEARTBEAT_TIMEOUT) == 10_000
        events.close()


def test_a_context_of_the_feeds_own_has_room_for_thousands_of_sources() -> None:
    with new_context() as context:
        assert context.get(zmq.MAX_SOCKETS) == context.get(zmq.SOCKET_LIMIT)
