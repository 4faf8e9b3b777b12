"""What samplers leave behind, as draws, scores and named values:
`zv.summary(zv.from_numpyro(mcmc))`.

Each adapter is one function; it imports its sampler's package when it is called.
"""

from .arviz import from_arviz as from_arviz
from .blackjax import from_blackjax as from_blackjax
from .log_density import from_log_density as from_log_density
from .numpyro import from_numpyro as from_numpyro
from .pymc import from_pymc as from_pymc
from .recognition import recognise as recognise
from .stan import from_bridgestan as from_bridgestan
from .stan import from_cmdstan as from_cmdstan
