"""Events and levels: integrands that jump, made smooth without a change of their means.

Where the log density is known, by the conditional probability along a line through the draw; where
only scores are, by Stein's own solution for a normal distribution, which has the same jump.
"""
