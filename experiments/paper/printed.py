"""Numbers as the paper prints them."""

# Mean absolute errors on Genz's functions. Table 1: plain mean, polynomial, kernel, both
TABLE_1 = {
    "Continuous": (2.77e-3, 3.21e-3, 3.28e-4, 1.85e-4),
    "Corner Peak": (5.76e-3, 1.07e-3, 9.27e-6, 6.05e-6),
    "Discontinuous": (2.04e-2, 1.32e-2, 3.91e-3, 2.65e-3),
    "Gaussian Peak": (1.47e-3, 1.40e-3, 1.24e-5, 1.05e-5),
    "Oscillatory": (4.17e-3, 1.06e-3, 4.63e-6, 3.90e-6),
    "Product Peak": (1.37e-3, 1.32e-3, 2.12e-5, 2.52e-6),
}
# Table 3, kernels: linear system, SGD 2 epochs, SGD 5 epochs
TABLE_3 = {
    "Continuous": (3.04e-4, 3.45e-4, 3.28e-4),
    "Corner Peak": (7.07e-6, 1.69e-5, 9.27e-6),
    "Discontinuous": (2.39e-3, 6.30e-3, 3.91e-3),
    "Gaussian Peak": (8.84e-6, 1.10e-4, 1.24e-5),
    "Oscillatory": (3.68e-6, 1.22e-5, 4.63e-6),
    "Product Peak": (1.79e-5, 1.48e-4, 2.12e-5),
}
# Table 4, product peak by dimension: plain mean, linear system, SGD 2 epochs, SGD 5 epochs
TABLE_4 = {
    5: (2.85e-3, 5.81e-4, 6.51e-4, 5.84e-4),
    10: (2.29e-3, 1.98e-4, 2.79e-4, 2.70e-4),
    15: (2.10e-3, 4.93e-4, 1.22e-3, 6.14e-3),
    20: (1.73e-3, 5.13e-4, 6.35e-4, 5.90e-4),
}
# Table 5, kernels by 5 epochs of SGD: shares of the draws that fit of 50, 70, 90 and 100 %
TABLE_5 = {
    "Continuous": (3.28e-4, 4.82e-4, 7.40e-4, 3.80e-4),
    "Corner Peak": (9.27e-6, 1.57e-5, 3.26e-5, 1.02e-5),
    "Discontinuous": (3.91e-3, 7.29e-3, 3.2e-3, 3.51e-3),
    "Gaussian Peak": (1.24e-5, 2.18e-5, 2.78e-5, 2.05e-4),
    "Oscillatory": (4.63e-6, 8.47e-6, 1.67e-5, 3.25e-5),
    "Product Peak": (2.12e-5, 2.20e-5, 3.03e-5, 3.63e-5),
}

# Seconds of each table's columns
TIMES = {
    "Table 1": (7.1e-2, 4.3, 2.6, 5.7),
    "Table 3": (5.68e-1, 1.9e-1, 4.5e-1),
    "Table 4": (7.6e-1, 3.3e-1, 5.95e-1),
    "Table 5": (4.7e-1, 5.79e-1, 6.89e-1, 7.4e-1),
}
