"""Notebooks: found, checked, run with other parameters, swept and compared."""
