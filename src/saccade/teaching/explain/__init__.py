"""Explanations with all their numbers, from live parts: self-attention worked out, a soft dictionary, order, norms, words, a model's step."""
