"""Conjugate gradients: products with a matrix that is never factorised, stopped when the answer is
near enough."""
