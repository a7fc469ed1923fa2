"""What an LMCache server tells those who subscribe to its events, as msgpack maps.

    {"enabled", "incarnation", "next_cursor", "lost", "events": [{"seq", "kind",
     "medium", "model_name", "block_hashes", "parent_block_hash", "token_ids"}]}

This is what vLLM's connector reads, and sends on. A server that lost records, or
that is another process than before, takes back all that was said.
"""

from __future__ import annotations

from typing import Any

from kvindex.engines.engine import Batch, Event
from kvindex.engines.reading import MALFORMED, MISSHAPEN, left_out, natural
from kvindex.events import BlockRemoved, BlockStored

MEDIUM = "CPU"


class Server:
    """Reads what one server says."""

    def __init__(self) -> None:
        """Begin before the first batch."""
        self.reset()

    def reset(self) -> None:
        """Forget what the server said."""
        self._incarnation: int | None = None
        self._model: str | None = None
        self._said: dict[bytes, None] = {}

    def decode(self, said: dict[str, Any]) -> list[Batch]:
        """Read one batch."""
        incarnation = natural(said.get("incarnation"))
        records = said.get("events")
        if incarnation is None or not isinstance(records, list):
            return [Batch([MALFORMED])]
        found: list[Event] = []
        if said.get("lost") or self._incarnation not in {None, incarnation}:
            found += self._withdraw()
        self._incarnation = incarnation
        for record in records:
            found += self._one(record)
        return [Batch(found)]

    def _one(self, record: Any) -> list[Event]:  # noqa: ANN401
        try:
            kind = record["kind"]
            if kind == "lost":
                return self._withdraw()
            names = [_name(name) for name in record["block_hashes"]]
            model = str(record["model_name"])
            tokens = list(record["token_ids"] or ())
            parent = record["parent_block_hash"]
        except MISSHAPEN:
            return [MALFORMED]
        self._model = self._model or model
        if model != self._model:
            return [left_out(names)]
        if kind == "removed":
            gone = [name for name in names if name in self._said]
            for name in gone:
                del self._said[name]
            return [BlockRemoved(gone, MEDIUM)]
        self._said.update(dict.fromkeys(names))
        size = len(tokens) // len(names) if names else None
        return [BlockStored(names, tokens, parent, block_size=size, medium=MEDIUM)]

    def _withdraw(self) -> list[Event]:
        """Take back all that was said."""
        names = list(self._said)
        self._said.clear()
        return [BlockRemoved(names, MEDIUM)]


def _name(value: object) -> bytes:
    if isinstance(value, bytes):
        return value
    raise TypeError(value)
