"""Many trainings or translations: comparisons, grids, significance, and the runner of jobs here or on Ray."""
