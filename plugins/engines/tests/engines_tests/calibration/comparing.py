"""Comparing releases whose figures may differ by the rounding of float32."""

import numpy as np


def close(one: object, other: object) -> bool:
    """Equal, but for the rounding of float32 that numbers went through."""
    if isinstance(one, dict) and isinstance(other, dict):
        return {*one} == {*other} and all(close(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(close, one, other))
    if isinstance(one, float) and isinstance(other, float):
        return bool(np.isclose(one, other, rtol=1e-5, atol=1e-7))
    return one == other
