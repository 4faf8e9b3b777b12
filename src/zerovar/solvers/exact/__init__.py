"""Factorisations: primal or dual, by Cholesky or eigenvectors, of all draws or at centres, with
leave-out in closed form."""
