"""KVBM, through its event consolidator.

The consolidator speaks vLLM's wire, one block an event, rank 0 always, and
announces a block once a tier: sets, not copies. In `dedup` mode, the default, a
block is stored when the first tier has it and removed when the last one drops
it, without a medium: all of it counts as device. In `passthrough` mode each tier
says its own: GPU, CPU_TIER1 (host), CPU_TIER2 (disk). The GPU's own events are
those of the engine, which announces copies. A clear empties all of it.
"""

from kvindex.engines.engine import Engine

KVBM = Engine(name="kvbm", title="KVBM consolidator", kind="auto", copies=("device",))
