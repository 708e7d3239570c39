"""Stands in the way of the real package: ``make test-plain`` runs the tests as if llvmlite were not installed."""

raise ModuleNotFoundError("blocked by make test-plain")
