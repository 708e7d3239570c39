"""Data in: pictures, and federations made of them."""
