"""How tables, curves and pictures look."""
