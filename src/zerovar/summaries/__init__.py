"""The table that users of ArviZ read, with what control variates make of it beside."""

from .calls import summary as summary
