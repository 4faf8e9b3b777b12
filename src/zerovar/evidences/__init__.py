"""log Z with its error: from a chain, from a ladder of temperatures, from weighted points."""

from .calls import evidence as evidence
from .ladder import Ladder as Ladder
from .ladder import read_ladder as read_ladder
