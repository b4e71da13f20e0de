from fractions import Fraction

import pytest

from plnt.model.quantity import parse_quantity


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("8", 8),
        ("160Gi", 160 * 2**30),
        ("1.5Gi", 3 * 2**29),
        ("500m", Fraction(1, 2)),
        ("1e3", 1000),
        ("12E+2", 1200),
        ("2E", 2 * 10**18),
        ("100k", 100_000),
        ("5.", 5),
    ],
)
def test_quantity_is_exact(text: str, number: Fraction) -> None:
    assert parse_quantity(text) == number


@pytest.mark.parametrize("text", ["", ".", "Gi", "e3", "1Q", "1 Gi"])
def test_text_that_is_no_quantity_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no Kubernetes quantity"):
        parse_quantity(text)
