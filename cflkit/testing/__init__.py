"""What must hold for every method, and the places to try it in: a GPU that is not there, workers far away."""
