"""What runs a method over a federation: local training, messages, rounds, scores."""
