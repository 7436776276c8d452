"""The speed and the memory of the core, beside others in the same process.

    python tools/bench.py [--device cuda]

Every figure of the first table is a ratio to the smallest block that does the same: one fused QKV
layer, `F.scaled_dot_product_attention(is_causal=True)`, one output layer, and no checks. All
contestants share their weights. They take turns, round after round, and each figure is the median
over the rounds of the ratio within a round, so that a busy machine slows all of them alike. On
Linux, freed memory is kept for the next in turn: fetching it from the system anew would cost the
large sizes up to half their time, by luck.
"""

import argparse
import ctypes
import random
import statistics
import sys
import time
from collections.abc import Callable
from copy import copy
from functools import partial
from itertools import product

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mha_course.collection import cost
from mha_lesson import GroupedQueryAttention, KVCache, MultiHeadAttention, causal_mask

SIZES = [(1, 16, 64, 4), (8, 128, 512, 8), (1, 1024, 512, 8), (1, 4096, 512, 8)]
BUDGET = 8.0  # seconds of one row
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
CONTESTANTS = {
    "block": "the minimal block against itself: the noise of this run",
    "fused": "mha_lesson, without weights",
    "explicit": "mha_lesson, with every head's weights",
    "torch": "nn.MultiheadAttention(need_weights=False)",
    "torch, weights": "nn.MultiheadAttention(average_attn_weights=False)",
    "torch, fast path": "the same in its evaluation fast path (forward only)",
}


class MinimalBlock(nn.Module):
    """Causal self-attention in seven lines: what the others are measured by."""

    def __init__(self, mha: MultiHeadAttention) -> None:
        super().__init__()
        self.w_qkv, self.w_o, self.n_heads = mha.w_qkv, mha.w_o, mha.n_heads

    def forward(self, x: Tensor) -> Tensor:
        B, T, d_model = x.shape
        q, k, v = self.w_qkv(x).view(B, T, 3, self.n_heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
        context = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.w_o(context.transpose(1, 2).reshape(B, T, d_model))


class MinimalDecoder(nn.Module):
    """What a writing model needs of a layer, and no more: all at once, or one token and a cache."""

    def __init__(self, layer: GroupedQueryAttention) -> None:
        super().__init__()
        self.w_qkv, self.w_o, self.parts = layer.w_qkv, layer.w_o, layer.parts
        self.d_k, self.shared = layer.d_k, layer.n_kv_heads < layer.n_heads

    def forward(self, x: Tensor, cached: tuple[Tensor, Tensor] | None = None) -> Tensor:
        B, T, _ = x.shape
        q, k, v = (part.view(B, T, -1, self.d_k).transpose(1, 2)
                   for part in self.w_qkv(x).split(self.parts, dim=-1))  # fmt: skip
        if cached is not None:
            k, v = torch.cat((cached[0], k), dim=2), torch.cat((cached[1], v), dim=2)
        context = F.scaled_dot_product_attention(
            q, k, v, is_causal=cached is None, enable_gqa=self.shared
        )
        return self.w_o(context.transpose(1, 2).reshape(B, T, -1))


def contestants(size: tuple[int, ...], x: Tensor, backward: bool) -> dict[str, Callable]:
    """What takes turns, by name: functions without arguments that return the output."""
    _, T, d_model, n_heads = size
    mha = MultiHeadAttention(d_model, n_heads).to(x).train(backward)
    block, theirs = MinimalBlock(mha), mha.to_torch()
    blocked = causal_mask(T, x.device)

    def torch_module(fast_path: bool = False, **how: bool) -> Callable:
        def call() -> Tensor:
            torch.backends.mha.set_fastpath_enabled(fast_path)
            return theirs(x, x, x, attn_mask=blocked, **how)[0]

        return call

    calls = {
        "base": lambda: block(x),
        "block": lambda: block(x),
        "fused": lambda: mha(x, causal=True),
        "explicit": lambda: mha(x, causal=True, return_weights=True)[0],
        "torch": torch_module(need_weights=False, is_causal=True),
        "torch, weights": torch_module(average_attn_weights=False),
    }
    if not backward:
        calls["torch, fast path"] = torch_module(fast_path=True, average_attn_weights=False)
    return calls


def timer(call: Callable[[], Tensor], x: Tensor, backward: bool) -> Callable[[int], float]:
    """A function that takes how often, and returns the seconds of one call."""

    def wait() -> None:
        if x.is_cuda:
            torch.cuda.synchronize()

    def seconds(repeats: int) -> float:
        wait()
        start = time.perf_counter()
        for _ in range(repeats):
            if backward:
                call().sum().backward()
            else:
                with torch.no_grad():
                    call()
        wait()
        return (time.perf_counter() - start) / repeats

    return seconds


def keep_freed_memory() -> None:
    """Tells the C library (glibc) to hand no freed memory back to the system."""
    if sys.platform == "linux":
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(-4, 0)  # M_MMAP_MAX: large tensors too come from the heap
        mallopt(-1, 2**31 - 1)  # M_TRIM_THRESHOLD: the heap does not shrink


def compare(
    size: tuple[int, ...], dtype: torch.dtype, device: str, backward: bool
) -> tuple[float, dict[str, float]]:
    """Seconds of the minimal block, and the ratios of the contestants to it."""
    B, T, d_model, _ = size
    x = torch.randn(B, T, d_model, dtype=dtype, device=device, requires_grad=backward)
    timers = {k: timer(call, x, backward) for k, call in contestants(size, x, backward).items()}
    base, samples = in_turns(timers)
    ratios = {name: ratio(taken, base) for name, taken in samples.items()}
    ratios["explicit : torch, weights"] = ratio(samples["explicit"], samples["torch, weights"])
    return statistics.median(base), ratios


def in_turns(
    timers: dict[str, Callable[[int], float]],
) -> tuple[list[float], dict[str, list[float]]]:
    """Seconds of "base", and of the others by name, round after round."""
    for seconds in timers.values():
        seconds(2)  # warm up
    one_round = sum(seconds(1) for seconds in timers.values())
    repeats = max(1, round(0.02 * len(timers) / one_round))  # a sample takes 20 ms or more
    rounds = min(51, max(15, round(BUDGET / (one_round * repeats))))
    samples: dict[str, list[float]] = {name: [] for name in timers}
    order = random.Random(0)
    for _ in range(rounds):
        for name in order.sample(list(timers), len(timers)):  # nobody always follows the same one
            samples[name].append(timers[name](repeats))
    return samples.pop("base"), samples


def ratio(taken: list[float], base: list[float]) -> float:
    return statistics.median(a / b for a, b in zip(taken, base, strict=True))


def print_row(*cells: str) -> None:
    print("| " + " | ".join(cells) + " |", flush=True)


def print_header(*cells: str) -> None:
    print_row(*cells)
    print("|" + "---|" * len(cells))


def speed(device: str) -> None:
    for name, meaning in CONTESTANTS.items():
        print(f"- {name}: {meaning}")
    columns = [*CONTESTANTS, "explicit : torch, weights"]
    print()
    print_header("B, T, d_model, h", "dtype", "pass", "base, ms", *columns)
    for (name, dtype), size, backward in product(DTYPES.items(), SIZES, (False, True)):
        base, ratios = compare(size, dtype, device, backward)
        cells = [f"{ratios[c]:.2f}" if c in ratios else "–" for c in columns]
        way = "forward + backward" if backward else "forward"
        print_row(", ".join(map(str, size)), name, way, f"{1e3 * base:.3g}", *cells)


def writers(n_kv_heads: int, T: int, device: str) -> dict[str, tuple[Callable, Callable]]:
    """Ours and the minimal one, by what they do: T tokens at once, and one with T in the cache."""
    x = torch.randn(1, T + 1, 512, device=device)
    layer = GroupedQueryAttention(512, 8, n_kv_heads).to(device).eval()
    minimal, full = MinimalDecoder(layer), KVCache()
    with torch.no_grad():
        layer(x[:, :T], full)
    cached = (full.keys, full.values)
    return {
        f"{T:,} tokens at once": (lambda: layer(x[:, :T]), lambda: minimal(x[:, :T])),
        f"one token after {T:,}": (
            lambda: layer(x[:, T:], copy(full)),  # the step takes a new cache, and leaves `full`
            lambda: minimal(x[:, T:], cached),
        ),
    }


def decoding(device: str) -> None:
    """`GroupedQueryAttention` beside the smallest layer that does the same."""
    print("\nForward, float32, B, d_model, h = 1, 512, 8:\n")
    print_header("what", "h_kv", "minimal, ms", "minimal again", "GroupedQueryAttention")
    for n_kv_heads in (8, 2, 1):
        for what, (ours, base) in writers(n_kv_heads, 1024, device).items():
            torch.testing.assert_close(ours(), base())
            calls = {"base": base, "again": base, "ours": ours}
            on_device = torch.zeros(0, device=device)
            timers = {name: timer(call, on_device, False) for name, call in calls.items()}
            taken, samples = in_turns(timers)
            ratios = [f"{ratio(samples[name], taken):.2f}" for name in ("again", "ours")]
            print_row(what, str(n_kv_heads), f"{1e3 * statistics.median(taken):.3g}", *ratios)


def memory(device: str) -> None:
    print("\nMemory of one forward pass at its peak, B, d_model, h = 1, 512, 8, float32, MiB:\n")
    print_header("T", "fused", "explicit")
    mha = MultiHeadAttention(512, 8).to(device).eval()
    for T in (512, 1024, 2048, 4096, 8192):
        x = torch.randn(1, T, 512, device=device)
        calls = (partial(mha, x, causal=True, return_weights=which) for which in (False, True))
        peaks = [cost.peak_bytes(call, x.device) for call in calls]
        print_row(str(T), *(f"{peak / 2**20:,.0f}" for peak in peaks))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--only", choices=["speed", "decoding", "memory"], help="default: all")
    args = parser.parse_args()
    name = torch.cuda.get_device_name() if args.device == "cuda" else "CPU"
    print(f"torch {torch.__version__}, {name}, {torch.get_num_threads()} CPU threads, causal\n")
    keep_freed_memory()
    parts = [args.only] if args.only else ["speed", "decoding", "memory"]
    if "speed" in parts:
        speed(args.device)
    if "decoding" in parts:
        decoding(args.device)
    if "memory" in parts:
        memory(args.device)


if __name__ == "__main__":
    main()
