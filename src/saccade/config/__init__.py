"""Recipes: read, checked, completed by the data, upgraded; and the catalogue of everything that they can name."""
