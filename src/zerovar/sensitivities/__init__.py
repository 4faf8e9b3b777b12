"""Sensitivities: how answers depend on the prior, the data and the settings of a model."""

from .calls import sensitivity

__all__ = ["sensitivity"]
