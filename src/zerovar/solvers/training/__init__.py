"""Stochastic optimisation: mini-batches of any family in one compiled loop, at a cost linear in the
draws."""
