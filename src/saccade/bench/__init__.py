"""Benchmarks: ours beside what people use today, in one run."""
