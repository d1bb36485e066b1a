"""What the owner of a site writes down, and how a mistake in it is told."""

import pytest

from dprbft.site.directory import checked_settings
from panas.runtime.errors import BadInput


@pytest.mark.parametrize("name", ["north east", "", "-north", "n" * 65])
def test_a_name_that_does_not_fit_is_told_in_words(name: str):
    given = {"name": name, "data": "a.npz", "epsilon": 1.0, "delta": 1e-5}
    with pytest.raises(BadInput, match="expected name to be 1 to 64 letters, digits"):
        checked_settings(given, "site.toml")
