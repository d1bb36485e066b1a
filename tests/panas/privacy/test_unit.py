"""Privacy units: which samples a group has, and which group a sample has."""

import torch

from panas.privacy.unit import members, number_units, rows_of, unit_name

GROUPS = torch.tensor([30, -2, 30, 8, -2, 30])


def test_units_are_numbered_as_they_first_appear() -> None:
    units = number_units(GROUPS)
    assert units.tolist() == [0, 1, 0, 2, 1, 0]
    assert number_units(torch.tensor([9, 4, 7])).tolist() == [0, 1, 2]  # groups of one: the samples
    assert number_units(GROUPS[:0]).tolist() == []
    assert rows_of(units, torch.tensor([2, 0])).tolist() == [0, 2, 3, 5]


def test_only_units_of_several_samples_have_members() -> None:
    assert [m.tolist() for m in members(GROUPS)] == [[0, 2, 5], [1, 4]]
    assert members(None) == []


def test_a_unit_has_a_name() -> None:
    assert unit_name() == "one training sample"
    assert unit_name("patient_id") == "one group: patient_id"
