"""Number formats by brute force: every value listed as a fraction, by definition, and the nearest one looked up."""

from fractions import Fraction
from itertools import pairwise


def powers(exponent):
    return Fraction(2) ** exponent


def fixed_values(width, fraction_width, signed=True):
    low, high = (-(2 ** (width - 1)), 2 ** (width - 1) - 1) if signed else (0, 2**width - 1)
    return [Fraction(integer) * powers(-fraction_width) for integer in range(low, high + 1)]


def float_values(exponent_width, mantissa_width, bias, *, reserved=True, hidden=True):
    """Every finite value from its three fields. reserved: the highest exponent holds no finite values."""
    found = set()
    for code in range(2**exponent_width - reserved):
        for mantissa in range(2**mantissa_width):
            fraction = Fraction(mantissa, 2**mantissa_width)
            if not hidden:
                value = fraction * powers(code - bias)
            elif code == 0:
                value = fraction * powers(1 - bias)
            else:
                value = (1 + fraction) * powers(code - bias)
            found |= {value, -value}
    return sorted(found)


def nearest(x, values):
    """The nearest of sorted values; of two as near, the one an even number of steps from zero. Saturates."""
    x = Fraction(x)
    gap = min(abs(x - value) for value in values)
    ties = [value for value in values if abs(x - value) == gap]
    if len(ties) == 1:
        return ties[0]
    low, high = sorted(map(abs, ties))
    even = low if (low / (high - low)) % 2 == 0 else high
    return even if even in ties else -even


def nearest_power(x, low, high):
    """The nearest signed power of two on a logarithmic scale, 0 where the exponent would be below the lowest."""
    x = Fraction(x)
    if x == 0:
        return Fraction(0)
    exponent = low - 2
    # |x| rounds up where it is above 2**(exponent + 1/2), that is where its square is above 2**(2 * exponent + 1).
    while x * x > powers(2 * exponent + 1):
        exponent += 1
    if exponent < low:
        return Fraction(0)
    size = powers(min(exponent, high))
    return size if x > 0 else -size


def between(values):
    """Every value, every middle between two, both a bit to either side, and points beyond the ends."""
    values = sorted(set(values))
    middles = [(a + b) / 2 for a, b in pairwise(values)]
    points = [*values, *middles, *(m + e for m in middles for e in (-powers(-60), powers(-60)))]
    return [*points, values[0] * 3 - 1, values[-1] * 3 + 1]
