"""The course: six assignments, what builds them, and what grades them. Start with ``course/README.md``."""
