"""Examples; run one with `python -m examples.NAME` from the project's folder."""
