"""Live feeds: engines publish their KV events over ZMQ, a feed applies them.

    from kvindex.feeds import Feed, Source

    sources = Source.ranks("w0", "tcp://10.0.0.7:5557", 2, replay="tcp://10.0.0.7:5657")
    with Feed(index, sources) as feed:
        feed.wait(timeout=5.0)      # every source connected and replayed
        ...
        feed.sources()              # a frozen row per source: status, cursor, losses

Needs pyzmq (`pip install 'kvindex[zmq]'`), which is imported when a `Feed` is
made. What goes wrong is logged to `kvindex.feeds`.
"""

from kvindex.feeds.source import Source
from kvindex.feeds.state import SourceState
from kvindex.feeds.supervisor import Feed

__all__ = ["Feed", "Source", "SourceState"]
