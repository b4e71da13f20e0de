import pytest
from hypothesis import given
from hypothesis import strategies as st

from plnt.sandbox.addresses import listen_address, pod_address


def test_pod_listens_where_the_rule_says() -> None:
    assert listen_address("10.101.0.7") == "127.101.0.7"


@pytest.mark.parametrize("address", ["127.0.0.1", "192.168.0.1", "10.1", "nonsense"])
def test_other_addresses_are_refused(address: str) -> None:
    with pytest.raises(ValueError, match=r"no address|Expected 4|not permitted"):
        listen_address(address)


@given(st.integers(1, 254), st.sets(st.integers(0, 60_000), max_size=20))
def test_pods_of_a_sandbox_have_addresses_of_their_own_in_its_range(number: int, indexes: set[int]) -> None:
    addresses = {listen_address(pod_address(number, index)) for index in indexes}
    assert len(addresses) == len(indexes)
    assert all(address.startswith(f"127.{number}.") and not address.endswith(".0") for address in addresses)
