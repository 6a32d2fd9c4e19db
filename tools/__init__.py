"""The steps of the book's graph: each is a small program that `make` runs."""
