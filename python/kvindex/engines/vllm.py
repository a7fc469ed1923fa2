"""vLLM, with its own connectors for offloading.

Copies are counted on device and host: the GPU pool announces every physical
block. A clear says no tier; one is taken for device and host, and of two in one
batch the first for the GPU pool's and the second for the connector's.
"""

from kvindex.engines.engine import Engine

VLLM = Engine(name="vllm", title="vLLM", kind="vllm")
