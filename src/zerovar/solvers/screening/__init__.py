"""Fits that choose their terms: a base of all linear terms and squares, and products that stand out
from chance."""
