"""The linear algebra that solvers share: compiled tiles of Grams and features, Cholesky factors on
host or device, memory."""
