"""A trace of a small model by nutpie through PyMC, gradients kept, with the versions that are
there:

    python tests/traces/make.py tests/traces/pymc6.nc.gz

The tests read it where PyMC is another version or none. What they do not need is left out.
"""

import gzip
import sys
import tempfile
from pathlib import Path

import numpy as np
import pymc as pm
import xarray as xr

GROUPS = {
    "posterior": None,  # all variables
    "sample_stats": ["diverging", "unconstrained_draw", "gradient"],
    "unconstrained_posterior": None,
}


def sample():
    with pm.Model(coords={"part": ["a", "b", "c"]}):
        mu = pm.Normal("mu", 1.0, 2.0)
        tau = pm.HalfNormal("tau", 1.0)
        share = pm.Dirichlet("share", np.array([2.0, 3.0, 4.0]), dims="part")
        pm.Deterministic("odds", share[0] / share[2])
        pm.Normal("y", mu, tau, observed=np.array([0.5, 2.0]))
        # PyMC 6 has a line of its own, and nutpie takes the first of these from it
        kept = {"store_gradient": True}
        how = {"nuts": kept, "idata_kwargs": {"include_transformed": True}}
        if pm.__version__ < "6":
            how = {"nuts_sampler_kwargs": {**kept, "store_unconstrained": True}}
        run = {"draws": 12, "tune": 200, "chains": 2, "cores": 1, "random_seed": 1}
        return pm.sample(nuts_sampler="nutpie", progressbar=False, **run, **how)


def main(path: str) -> None:
    data = sample()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "trace.nc"
        for group, names in GROUPS.items():
            if group in (data.children if hasattr(data, "children") else data.groups()):
                found = data[group]
                found = found if isinstance(found, xr.Dataset) else found.to_dataset()
                found = (found if names is None else found[names]).drop_attrs()
                found.to_netcdf(file, mode="a", group=group, engine="h5netcdf")
        Path(path).write_bytes(gzip.compress(file.read_bytes(), mtime=0))


if __name__ == "__main__":
    main(*sys.argv[1:])
