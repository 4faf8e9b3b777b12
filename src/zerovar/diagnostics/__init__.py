"""Are these the scores of these draws, and what makes an answer less certain than it looks?"""

from .cautions import NO_VARIANCE as NO_VARIANCE
from .cautions import Cautions as Cautions
from .checks import Check as Check
from .checks import check as check
