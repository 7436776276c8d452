"""What a second device refuses, and the course on it: `--device pretend` or `--device cuda`.

This tests that the pretended device (see pretend_device.py) refuses two devices in one operation;
if it refused too much, the tests and notebooks that run on it would fail. On the CPU nothing runs.
"""

import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import mha_lesson
from mha_course import check, explore
from mha_course.cells import selfcheck
from mha_course.collection.cost import peak_bytes
from mha_lesson import pretrained
from mha_lesson.heads import breadth
from mha_lesson.text import random_sentences
from mha_lesson.training import two_sides_runs

TWO_DEVICES = (
    "Expected all tensors to be on the same device|indices should be either on|same device"
)
HERE = torch.arange(6.0).view(2, 3)


@pytest.fixture
def no_cpu(device: torch.device) -> torch.device:
    return device  # conftest.py leaves out the tests that use it on the CPU


@pytest.fixture
def x(no_cpu: torch.device) -> Tensor:
    return HERE.to(no_cpu)


MIXES: dict[str, Callable[[Tensor], object]] = {
    "add": lambda x: x + HERE,
    "a number of the device, a tensor of the CPU": lambda x: HERE * x.sum(),
    "in place": lambda x: x.add_(HERE),
    "mm": lambda x: x @ HERE.T,
    "linear": lambda x: nn.Linear(3, 2)(x),
    "cat": lambda x: torch.cat([x, HERE]),
    "where": lambda x: torch.where(HERE > 1, x, x),
    "embedding": lambda x: F.embedding(torch.tensor([0]), x),
    "cross_entropy": lambda x: F.cross_entropy(x, torch.tensor([0, 1])),
    "attention": lambda x: F.scaled_dot_product_attention(x, HERE, x),
    "attention's mask": lambda x: F.scaled_dot_product_attention(x, x, x, torch.ones(2, 2) > 0),
    "an index of the device for a tensor of the CPU": (
        lambda x: HERE[torch.zeros(1, dtype=torch.long, device=x.device)]
    ),
}


@pytest.mark.parametrize("name", MIXES)
def test_refuses_two_devices_in_one_operation(name: str, x: Tensor) -> None:
    with pytest.raises((RuntimeError, IndexError, ValueError), match=TWO_DEVICES):
        MIXES[name](x)


def test_attention_without_weights_holds_no_square(no_cpu: torch.device) -> None:
    mha = mha_lesson.MultiHeadAttention(64, 8).to(no_cpu)
    x = torch.ones(1, 1024, 64, device=no_cpu)
    small, large = (peak_bytes(partial(mha, x[:, :T], causal=True), no_cpu) for T in (512, 1024))
    assert large < 3 * small


def test_the_course_computes_on_the_device(no_cpu: torch.device) -> None:
    assert mha_lesson.device.type == no_cpu.type
    ask = "import mha_lesson, torch; print(torch.ones(2, device=mha_lesson.device).sum().device)"
    environment = os.environ | {"MHA_LESSON_DEVICE": no_cpu.type}
    folder = Path(__file__).parents[2] / "notebooks"  # where their kernels start
    words = [sys.executable, "-c", ask]
    said = subprocess.check_output(words, cwd=folder, env=environment, text=True)
    assert said.strip() == f"{no_cpu.type}:0"


PUBLIC: dict[str, Callable[[], object]] = {
    # explore.training takes a minute; two_sides_runs is what it does.
    **{name: getattr(explore, name) for name in explore.__all__ if name != "training"},
    "two_sides_runs": lambda: two_sides_runs(2, [0], n_steps=2),
    "random_sentences": lambda: random_sentences(2, 3),
    "load_untrained": pretrained.load_untrained,
    "selfcheck": lambda: selfcheck._torch(),
    "breadth": lambda: breadth(torch.ones(3, 3, device="cpu")),
    "check": lambda: check.causal_mask(lambda T: torch.ones(T, T, dtype=torch.bool).triu(1)),
}


@pytest.mark.parametrize("name", PUBLIC)
def test_works_where_the_device_is_the_default(name: str, no_cpu: torch.device) -> None:
    """As after torch.set_default_device("cuda"), which some write in their first cell."""
    before = torch.get_default_device()
    with torch.device(no_cpu):
        PUBLIC[name]()
    assert torch.get_default_device() == before


def test_a_mask_made_of_an_int_may_live_anywhere(no_cpu: torch.device) -> None:
    """The exercise has no tensor among its inputs whose device the answer could follow."""

    def mask(T: int) -> Tensor:
        return torch.ones(T, T, dtype=torch.bool, device=no_cpu).triu(1)

    assert check.causal_mask(mask).passed
