"""Hidden tests, for instructors only. None of this may reach a student."""
