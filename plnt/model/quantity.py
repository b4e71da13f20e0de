"""Kubernetes quantities, such as ``160Gi`` or ``500m``, as whole numbers."""

import re
from fractions import Fraction

_SHAPE = re.compile(r"([+-]?[0-9]*\.?[0-9]*)([eE][+-]?[0-9]+|[numkMGTPE]|[KMGTPE]i|)")
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = "KMGTPE"


def parse_quantity(text: str) -> Fraction:
    """Give the exact number in ``text``.

    Raises:
        ValueError: it is no quantity.
    """
    match = _SHAPE.fullmatch(text)
    if match is None or not any(letter.isdigit() for letter in match[1]):
        raise ValueError(f"{text!r} is no Kubernetes quantity")
    number, suffix = Fraction(match[1].rstrip(".") or "0"), match[2]
    if suffix.endswith("i"):
        return number * Fraction(1024) ** (_BINARY.index(suffix[0]) + 1)
    if suffix in _DECIMAL:
        return number * Fraction(10) ** _DECIMAL[suffix]
    return number * Fraction(10) ** int(suffix[1:])
