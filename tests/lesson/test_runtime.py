"""Which device the course chooses, and what it computes where another one is the default."""

import gc
import sys
import warnings
from collections.abc import Callable
from types import ModuleType

import pytest
import torch

from mha_lesson import runtime, tasks, text

OLD_BUILD = ["sm_50", "sm_60", "sm_70", "sm_75", "sm_80", "sm_86", "sm_90"]
NEW_BUILD = ["sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120", "compute_120"]


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """A CUDA card of this capability, and a PyTorch with kernels for these."""
    monkeypatch.delenv("MHA_LESSON_DEVICE", raising=False)

    def chosen(capability: tuple[int, int], built: list[str]) -> str:
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: capability)
        monkeypatch.setattr(torch.cuda, "get_arch_list", lambda: built)
        return runtime.choose_device().type

    return chosen


@pytest.mark.parametrize(
    ("capability", "built", "device"),
    [
        ((7, 5), NEW_BUILD, "cuda"),  # T4
        ((8, 9), NEW_BUILD, "cuda"),  # by sm_80 or sm_86: the same generation
        ((6, 0), NEW_BUILD, "cpu"),  # P100
        ((7, 0), NEW_BUILD, "cpu"),  # V100
        ((6, 1), OLD_BUILD, "cuda"),  # by sm_60
        ((10, 0), OLD_BUILD, "cpu"),  # newer than the build
        ((12, 1), NEW_BUILD, "cuda"),
        ((13, 0), NEW_BUILD, "cuda"),  # translated from compute_120
        ((9, 0), ["sm_90a"], "cuda"),
        ((10, 3), ["sm_100a", "compute_100a"], "cpu"),  # a: for that card alone
        ((10, 0), ["sm_90", "compute_90a"], "cpu"),
        ((10, 3), ["sm_100f"], "cuda"),  # f: for its family
        ((10, 3), ["compute_100f"], "cuda"),
        ((10, 0), ["sm_103f"], "cpu"),
        ((12, 0), ["sm_100f", "compute_100f"], "cpu"),
        ((9, 0), [], "cpu"),
        ((11, 0), ["gfx1100"], "cpu"),  # ROCm is not meant
    ],
)
def test_cuda_only_where_the_build_supports_the_gpu(capability, built, device, card) -> None:
    assert card(capability, built) == device


def test_a_driver_that_fails_and_an_old_gpu_are_left_alone_without_a_warning(
    card, monkeypatch, recwarn
) -> None:
    """A warning in a cell would be compared with an output that has none."""

    def fails() -> None:
        raise RuntimeError("CUDA driver initialization failed")

    def warns() -> tuple[int, int]:
        warnings.warn("Found GPU0 which is of cuda capability 6.0", stacklevel=2)
        return 6, 0

    for asked in (fails, warns):
        assert card((8, 0), NEW_BUILD) == "cuda"
        monkeypatch.setattr(torch.cuda, "get_device_capability", asked)
        assert runtime.choose_device().type == "cpu" and not recwarn.list


@pytest.mark.parametrize(("wanted", "device"), [("cpu", "cpu"), (" meta ", "meta"), ("", "cuda")])
def test_the_environment_decides(wanted, device, card, monkeypatch) -> None:
    assert card((8, 0), NEW_BUILD) == "cuda"
    monkeypatch.setenv("MHA_LESSON_DEVICE", wanted)
    assert runtime.choose_device().type == device


@pytest.mark.parametrize("wanted", ["gpu", "cuda:99", "cpu0"])
def test_a_device_that_is_not_there_is_named(wanted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MHA_LESSON_DEVICE", wanted)
    with pytest.raises(ValueError, match=rf"MHA_LESSON_DEVICE must name .* got '{wanted}'"):
        runtime.choose_device()


@pytest.mark.parametrize(
    ("kernel", "asked", "settled"),
    [(True, None, ["threads: 1", "frozen"]), (True, "2", ["frozen"]), (False, None, [])],
)
def test_only_a_kernel_is_configured_and_threads_asked_for_stay(
    monkeypatch, kernel, asked, settled
):
    done: list[str] = []
    monkeypatch.setattr(torch, "set_num_threads", lambda n: done.append(f"threads: {n}"))
    monkeypatch.setattr(gc, "freeze", lambda: done.append("frozen"))
    monkeypatch.delitem(sys.modules, "ipykernel", raising=False)
    if kernel:
        monkeypatch.setitem(sys.modules, "ipykernel", ModuleType("ipykernel"))
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if asked:
        monkeypatch.setenv("OMP_NUM_THREADS", asked)
    runtime.configure_kernel()
    assert done == settled


# Whoever has a GPU may write torch.set_default_device("cuda") in their first cell. What promises
# the same numbers on every machine stays on the CPU, and everything else goes on.


def test_another_default_device_moves_no_seeded_draw() -> None:
    with torch.device("meta"):
        ids = torch.arange(99, device="cpu")
        drawn = [next(tasks.repeat_batches()), next(tasks.letter_batches())]
        drawn.append(next(tasks.text_batches(ids)))
        text.random_sentences(2, 3)
    assert all(x.is_cpu for x in drawn)
