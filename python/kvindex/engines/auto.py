"""Any source that speaks vLLM's or SGLang's wire, read so as to do least harm.

What an unregistered worker is taken for: a clear empties every tier, copies are
counted on device and host.
"""

from kvindex.engines.engine import Engine

AUTO = Engine(name="auto", title="any source of vLLM's or SGLang's wire", kind="auto")
