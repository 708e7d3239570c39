"""Clustered federated learning, five papers under one interface."""

__version__ = "0.1.0"
