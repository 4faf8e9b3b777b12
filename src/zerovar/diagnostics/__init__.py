"""Are these the scores of these draws, and what makes an answer less certain than it looks?"""

from .checks import Check as Check
from .checks import check_sample as check_sample
