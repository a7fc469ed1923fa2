"""What tests of cache groups have in common: three groups, told to a scene."""

from typing import Any

from tests.helpers import BLOCK, Scene

FULL: dict[str, Any] = {"group_idx": 0, "kv_cache_spec_kind": "full_attention"}
# The two blocks before the point.
WINDOW: dict[str, Any] = {
    "group_idx": 1,
    "kv_cache_spec_kind": "sliding_window",
    "kv_cache_spec_sliding_window": 2 * BLOCK + 1,
}
STATE: dict[str, Any] = {"group_idx": 2, "kv_cache_spec_kind": "mamba"}


def full(scene: Scene, letters: str, after: str = "") -> None:
    """Store blocks of the main group."""
    assert scene.S("w1", letters, after, **FULL).stored == len(letters)


def drop(scene: Scene, group: dict[str, Any], *paths: str) -> None:
    """Remove blocks of a group."""
    report = scene.R("w1", *paths, group_idx=group["group_idx"])
    assert report.removed == len(paths)


def depth(scene: Scene, path: str) -> int:
    """Return the depth of the only worker, 0 without a row."""
    return scene.depths(path).get("w1", 0)


def prefixes(path: str) -> list[str]:
    """Return the paths of all blocks of a path."""
    return [path[:end] for end in range(1, len(path) + 1)]
