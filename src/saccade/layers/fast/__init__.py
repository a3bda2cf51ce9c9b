"""Fused forms of layers: whole stacks, recurrences, 8-bit products, chunked losses."""
