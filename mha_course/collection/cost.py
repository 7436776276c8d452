"""What attention costs: counted beforehand, and measured on the machine at hand.

The two cores do the same arithmetic; the explicit one also writes out T × T scores and weights
for every head, which the fused one never holds.
"""

import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from mha_lesson.attention import attend, attention_weights
from mha_lesson.progress import Progress
from mha_lesson.refusals import (
    MOST,
    listed_ints,
    require_callable,
    require_device,
    require_kind,
    require_one_of,
    require_positive,
    require_positive_int,
    require_sizes,
)
from mha_lesson.refusals.of_attention import require_divisible
from mha_lesson.runtime import device as default_device

CORES = ("explicit", "fused")
FLOAT_BYTES = 4  # of a float32


@dataclass(frozen=True)
class Machine:
    """How fast a machine multiplies, and how fast it moves what no cache holds."""

    flops_per_second: float
    bytes_per_second: float

    def __post_init__(self) -> None:
        require_positive("flops_per_second", self.flops_per_second)
        require_positive("bytes_per_second", self.bytes_per_second)


TEXTBOOK = Machine(50e9, 10e9)  # round numbers of the size of one CPU core


@dataclass(frozen=True)
class Measured:
    """What `measure` found: for each core, seconds and peak bytes at each of `lengths`."""

    lengths: tuple[int, ...]
    d_model: int
    n_heads: int
    device: str
    machine: Machine
    seconds: dict[str, tuple[float, ...]]
    bytes: dict[str, tuple[int, ...]]


def flops(T: int, d_model: int, n_heads: int) -> dict[str, int]:
    """Floating-point operations of one forward pass over one sequence, by part.

    A multiply-add counts as 2. Only matrix products are counted: the four projections together,
    and the two products of attention.

    >>> flops(T=5, d_model=6, n_heads=3)
    {'projections': 1440, 'Q Kᵀ': 300, 'weights · V': 300}

    Raises:
        TypeError, ValueError: a size is no positive integer, or n_heads does not divide d_model.
    """
    T, d_model, n_heads = _sizes(T, d_model, n_heads)
    product = 2 * T * T * d_model  # h heads of d_k = d_model / h: their number cancels
    return {"projections": 8 * T * d_model**2, "Q Kᵀ": product, "weights · V": product}


def core_bytes(T: int, d_model: int, n_heads: int, core: str) -> int:
    """The most bytes that a core holds at once beside Q, K and V, in float32 without a mask.

    Explicit: scores and weights, h · T² each (as long as T ≥ d_k). Fused: the output and one
    number for each row; its work space, bounded as T grows and larger with more threads, is
    left out.
    """
    T, d_model, n_heads = _sizes(T, d_model, n_heads)
    require_one_of("core", core, CORES)
    if core == "explicit":
        return FLOAT_BYTES * n_heads * T * (T + max(T, d_model // n_heads))
    return FLOAT_BYTES * T * (d_model + n_heads)


def core_seconds(
    T: int, d_model: int, n_heads: int, core: str, machine: Machine = TEXTBOOK
) -> float:
    """An estimate of a core's time: all products at the rate of a large product, then all bytes
    at the rate of a large copy.

    Bytes moved: Q, K, V and the output once; explicit also writes and reads scores and weights.
    It is no floor: what fits into a cache moves faster than a large copy.
    """
    T, d_model, n_heads = _sizes(T, d_model, n_heads)
    require_one_of("core", core, CORES)
    require_kind("machine", machine, Machine)
    numbers = 4 * T * d_model + (4 * n_heads * T * T if core == "explicit" else 0)
    return 4 * T * T * d_model / machine.flops_per_second + (
        FLOAT_BYTES * numbers / machine.bytes_per_second
    )


def measure(
    lengths: Sequence[int] = (128, 256, 512, 1024),
    d_model: int = 384,
    n_heads: int = 12,
    *,
    repeats: int = 7,
    device: torch.device | str | None = None,
) -> Measured:
    """Median seconds and peak bytes of both cores, on one sequence of each length.

    Raises:
        TypeError, ValueError: a size is no positive integer, or n_heads does not divide d_model.
    """
    lengths = listed_ints("lengths", lengths, 1, MOST)
    if not lengths:
        raise ValueError("lengths must hold at least one length; got none.")
    _, d_model, n_heads = _sizes(max(lengths), d_model, n_heads)
    require_device("device", device)
    device = torch.device(default_device if device is None else device)
    seconds: dict[str, tuple[float, ...]] = dict.fromkeys(CORES, ())
    peaks: dict[str, tuple[int, ...]] = dict.fromkeys(CORES, ())
    with Progress(len(lengths), "measuring") as bar:
        for T in lengths:
            shape = (1, n_heads, T, d_model // n_heads)
            q, k, v = _random(3, *shape, device=device)
            for core in CORES:
                run = partial(run_core, core, q, k, v)
                seconds[core] += (median_seconds(run, repeats, device),)
                peaks[core] += (peak_bytes(run, device),)
            bar.advance(f"T = {T}")
    n = torch.get_num_threads()
    cuda = device.type == "cuda"
    name = torch.cuda.get_device_name(device) if cuda else f"CPU, {n} thread{'s' * (n > 1)}"
    machine = _machine_at_hand(device)
    return Measured(tuple(lengths), d_model, n_heads, name, machine, seconds, peaks)


def run_core(core: str, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """One of the two, for all queries at once, without a mask."""
    if core == "explicit":
        return attention_weights(q, k, None) @ v
    return attend(q, k, v, None, False, 0.0, False)[0]


def _random(*shape: int, device: torch.device) -> torch.Tensor:
    """Normal numbers from a generator of their own: the caller's random state stays as it is."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(0), device="cpu").to(device)


def _machine_at_hand(device: torch.device) -> Machine:
    """The rates of `device`: one large product, and one large copy."""
    x, y = _random(2, 1024, 1024, device=device)
    large = _random(16 * 2**20, device=device)
    target = torch.empty_like(large)
    product = median_seconds(lambda: torch.mm(x, y), 5, device)
    copy = median_seconds(lambda: target.copy_(large), 5, device)
    return Machine(2 * 1024**3 / product, 2 * FLOAT_BYTES * large.numel() / copy)


@torch.no_grad()
def median_seconds(run: Callable[[], object], repeats: int, device: torch.device) -> float:
    """The median time of `run` on `device`, after one call that does not count."""
    require_callable("run", run)
    require_positive_int("repeats", repeats)
    require_kind("device", device, torch.device)

    def wait() -> None:
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    def one_run() -> float:
        wait()
        start = time.perf_counter()
        run()
        wait()
        return time.perf_counter() - start

    one_run()
    return statistics.median(one_run() for _ in range(repeats))


@torch.no_grad()
def peak_bytes(run: Callable[[], object], device: torch.device) -> int:
    """The most bytes that tensors made by `run` take at one time.

    On the CPU PyTorch's profiler follows every allocation: the process's peak size would do, too,
    but only in a fresh process for each call.
    """
    require_callable("run", run)
    require_kind("device", device, torch.device)
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        run()
        torch.cuda.synchronize(device)
        return torch.cuda.max_memory_allocated(device) - before
    # `torch.profiler.profile` wraps this one, and imports PyTorch's compiler for it: a second.
    profile: Any = torch.autograd.profiler.profile(profile_memory=True)
    with _silent(), profile:
        run()
    now = peak = 0
    for event in profile.kineto_results.events():  # in the order of time
        if event.name() == "[memory]":
            now += event.nbytes()  # negative where memory is given back
            peak = max(peak, now)
    return peak


@contextmanager
def _silent() -> Iterator[None]:
    """Some builds of the profiler write to the process's stderr, which a cell would show."""
    kept = os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


def _sizes(T: int, d_model: int, n_heads: int) -> tuple[int, int, int]:
    """The sizes as Python's own integers: NumPy's would overflow when they are multiplied."""
    require_sizes(T=T, d_model=d_model, n_heads=n_heads)
    require_divisible(d_model, n_heads)
    return int(T), int(d_model), int(n_heads)
