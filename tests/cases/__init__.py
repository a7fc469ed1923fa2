"""Faults that were reported of other products, as inputs with answers."""
