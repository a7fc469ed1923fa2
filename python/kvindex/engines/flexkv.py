"""FlexKV, through vLLM's stream.

The GPU's events are vLLM's. Those of FlexKV's CPU and SSD tiers carry neither
tokens nor a parent, and name all blocks of a prefix again at each insertion:
sets, not copies. The hash of a block is stored unsigned and removed signed,
which is the same name. It is FlexKV's own, XXH64 over all tokens so far, so that
the index computes it from the prompt that is asked for. A clear is that of vLLM's
GPU pool.
"""

from kvindex.engines.engine import Engine

FLEXKV = Engine(name="flexkv", title="FlexKV", kind="flexkv")
