"""Figures: the only room that imports matplotlib. Everything outside passes data and gets a figure."""
