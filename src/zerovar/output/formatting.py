"""Numbers as people write them."""

import math

import numpy as np

# Gains beyond this are those of rounding errors: an error is then below √ε of the plain one
EXACT = float(np.reciprocal(np.finfo(float).eps))


def worth(gain: float) -> str:
    """Return a gain in a few digits, or the word for one that only rounding limits; nothing for a
    constant's, which is NaN."""
    if math.isnan(gain):
        return ""
    if gain > EXACT:
        return "exact"
    return f"{float(f'{gain:.3g}'):g}" if gain < 1e4 else f"{gain:.1e}"


def plus_minus(value: float, error: float) -> str:
    """Return `value ± error` with two digits of the error and as many of the value as it
    allows."""
    if not (math.isfinite(value) and math.isfinite(error)) or error <= 0:
        return f"{value:.6g} ± {error:.2g}"
    size = math.floor(math.log10(max(abs(value), error)))
    digits = 1 - math.floor(math.log10(error))
    if -4 <= size < 6:
        digits = min(max(digits, 0), 15 - max(size, 0))
        return f"{value:.{digits}f} ± " + (f"{error:.{digits}f}" if digits <= 6 else f"{error:.1e}")
    return f"{value:.{min(max(size + digits, 1), 15)}e} ± {error:.1e}"


def format_count(number: float) -> str:
    """Return a count as people say it: 950, 12 thousand, 3.4 million; nothing beyond what can be
    counted."""
    if math.isnan(number) or number > EXACT:
        return ""
    for power, word in ((1e12, ""), (1e9, " billion"), (1e6, " million"), (1e3, " thousand")):
        if number >= power:
            return f"{number:.1e}" if not word else f"{number / power:.3g}{word}"
    return f"{number:.0f}"
