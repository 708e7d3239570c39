"""Protocols, the runs that they ask for, and their records as one table."""
