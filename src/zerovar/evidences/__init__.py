"""log Z with its error: from a chain, from a ladder of temperatures, from weighted points."""

from .calls import evidence as evidence
from .ladders import Ladder as Ladder
from .ladders import read_ladder as read_ladder
from .sampling import ladder as ladder
