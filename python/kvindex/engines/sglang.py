"""SGLang, with HiCache.

Its events always name their LoRA adapter and salt, and a clear empties every
tier.
"""

from kvindex.engines.engine import Engine

SGLANG = Engine(name="sglang", title="SGLang", kind="sglang")
