"""Losses of models: `(m, d) -> (m,)`."""
