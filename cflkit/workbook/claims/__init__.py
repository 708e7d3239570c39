"""The papers' claims and numbers, set beside runs."""
