"""A line of the open thread: every way to write it, or not to, has its sentence."""

import pytest
import torch

from mha_course import check_line

RIGHT = torch.rand(3, 5)
MISTAKES = {"its rows are mixed up": RIGHT.flip(0), "it is what is asked for": RIGHT}
WRITTEN = [
    ({}, "○ V: first run the cell above"),
    ({"V": ...}, "○ V: not written yet"),
    ({"V": RIGHT.double()}, "✓ V: right"),
    ({"V": RIGHT + 2e-5}, "✓ V: right"),
    ({"V": RIGHT.flip(0)}, "✗ V: its rows are mixed up"),
    ({"V": RIGHT + 1e-2}, "✗ V: the shape is right, the numbers are not"),
    ({"V": RIGHT.T}, "✗ V: a tensor of shape (3, 5) is asked for, this is (5, 3)"),
    ({"V": 3}, "✗ V: a tensor of shape (3, 5) is asked for, this is no tensor but 3"),
]


@pytest.mark.parametrize(("names", "said"), WRITTEN)
def test_a_line_is_right_or_its_mistake_is_named(names, said, capsys):
    handed = check_line("V", names, RIGHT, MISTAKES)
    assert capsys.readouterr().out.startswith(said) and handed is RIGHT
    check_line("V", {"V": handed}, RIGHT, MISTAKES)  # what stood in is nobody's answer
    assert "first run the cell above" in capsys.readouterr().out
