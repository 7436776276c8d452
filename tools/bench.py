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
from copy import deepcopy
from functools import partial
from itertools import product

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mha_course.collection import cost
from mha_lesson import (
    GroupedQueryAttention,
    KVCache,
    MultiHeadAttention,
    causal_mask,
    padding_mask,
    scaled_dot_product_attention,
    smollm,
)
from mha_lesson.text import northanger_abbey

SIZES = [(1, 16, 64, 4), (8, 128, 512, 8), (1, 1024, 512, 8), (1, 4096, 512, 8)]
BUDGET = 8.0  # seconds of one row
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
CONTESTANTS = {
    "block": "the minimal block against itself: the noise of this run",
    "three layers": "the minimal block with three projection layers in place of one",
    "fused": "mha_lesson, without weights",
    "explicit": "mha_lesson, with every head's weights",
    "torch": "nn.MultiheadAttention(need_weights=False)",
    "torch, weights": "nn.MultiheadAttention(average_attn_weights=False)",
    "torch, fast path": "the same in its evaluation fast path (forward only)",
}


class MinimalBlock(nn.Module):
    """Self-attention in seven lines, causal or with a mask: what the others are measured by."""

    def __init__(self, mha: MultiHeadAttention) -> None:
        super().__init__()
        self.w_qkv, self.w_o, self.n_heads = mha.w_qkv, mha.w_o, mha.n_heads

    def heads(self, x: Tensor) -> tuple[Tensor, ...]:
        B, T, _ = x.shape
        return self.w_qkv(x).view(B, T, 3, self.n_heads, -1).permute(2, 0, 3, 1, 4).unbind(0)

    def forward(self, x: Tensor, keep: Tensor | None = None) -> Tensor:
        q, k, v = self.heads(x)
        context = F.scaled_dot_product_attention(q, k, v, attn_mask=keep, is_causal=keep is None)
        return self.w_o(context.transpose(1, 2).flatten(2))

    def with_weights(self, x: Tensor) -> tuple[Tensor, Tensor]:
        context, weights = least_function(*self.heads(x))
        return self.w_o(context.transpose(1, 2).flatten(2)), weights


def least_function(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    weights = (q * q.shape[-1] ** -0.5 @ k.transpose(-2, -1)).softmax(-1)
    return weights @ v, weights


class ThreeLayers(MinimalBlock):
    """The same with a layer each for Q, K and V in place of the fused one."""

    def __init__(self, mha: MultiHeadAttention) -> None:
        super().__init__(mha)
        rows = zip(mha.w_qkv.weight.chunk(3), mha.w_qkv.bias.chunk(3), strict=True)
        self.three = [(nn.Parameter(weight), nn.Parameter(bias)) for weight, bias in rows]

    def heads(self, x: Tensor) -> tuple[Tensor, ...]:
        return tuple(
            F.linear(x, *layer).unflatten(-1, (self.n_heads, -1)).transpose(1, 2)
            for layer in self.three
        )


class LeastCode(nn.Module):
    """What writing takes, and no more: memory for all tokens, a table of angles, no checks."""

    def __init__(self, layer: GroupedQueryAttention, B: int, n_tokens: int) -> None:
        super().__init__()
        self.w_qkv, self.w_o, self.parts, self.d_k = layer.w_qkv, layer.w_o, layer.parts, layer.d_k
        self.shared, self.window = layer.n_kv_heads < layer.n_heads, layer.window
        like = layer.w_o.weight
        self.k, self.v = like.new_zeros(2, B, layer.n_kv_heads, n_tokens, self.d_k)
        self.cos = None
        if layer.rope_base is not None:
            half = self.d_k // 2
            speed = layer.rope_base ** (-torch.arange(half, device=like.device) / half)
            angle = torch.arange(n_tokens, device=like.device)[:, None] * speed
            self.cos = torch.cat((angle.cos(), angle.cos()), dim=-1)
            self.sin = torch.cat((-angle.sin(), angle.sin()), dim=-1)

    def heads(self, x: Tensor, n: int) -> tuple[Tensor, Tensor, Tensor]:
        """Q, K and V of the tokens x at places n, n + 1, …"""
        B, T, _ = x.shape
        q, k, v = (
            part.view(B, T, -1, self.d_k).transpose(1, 2)
            for part in self.w_qkv(x).split(self.parts, dim=-1)
        )
        if self.cos is None:
            return q, k, v
        cos, sin = self.cos[n : n + T], self.sin[n : n + T]
        q, k = (y * cos + y.roll(self.d_k // 2, -1) * sin for y in (q, k))
        return q, k, v

    def output(self, q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None = None) -> Tensor:
        context = F.scaled_dot_product_attention(
            q, k, v, attn_mask=attn_mask, enable_gqa=self.shared
        )
        return self.w_o(context.transpose(1, 2).flatten(2))

    def forward(self, x: Tensor, n: int) -> Tensor:
        """One token, at place n."""
        q, self.k[:, :, n : n + 1], self.v[:, :, n : n + 1] = self.heads(x, n)
        start = 0 if self.window is None else max(0, n + 1 - self.window)
        return self.output(q, self.k[:, :, start : n + 1], self.v[:, :, start : n + 1])


def contestants(size: tuple[int, ...], x: Tensor, backward: bool) -> dict[str, Callable]:
    """What takes turns, by name: functions without arguments that return the output."""
    _, T, d_model, n_heads = size
    mha = MultiHeadAttention(d_model, n_heads).to(x).train(backward)
    block, three, theirs = MinimalBlock(mha), ThreeLayers(mha), mha.to_torch()
    blocked = causal_mask(T, x.device)

    def torch_module(fast_path: bool = False, **how: bool) -> Callable:
        def call() -> Tensor:
            torch.backends.mha.set_fastpath_enabled(fast_path)
            return theirs(x, x, x, attn_mask=blocked, **how)[0]

        return call

    calls = {
        "base": lambda: block(x),
        "block": lambda: block(x),
        "three layers": lambda: three(x),
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


PADDED = [(4, 16, 64, 4), (8, 64, 256, 8), (8, 128, 512, 8), (4, 512, 512, 8)]


def padded(size: tuple[int, ...], device: str, backward: bool) -> tuple[float, dict[str, float]]:
    """Seconds of the minimal block, and the ratios to it, and to PyTorch's function."""
    B, T, d_model, n_heads = size
    x = torch.randn(B, T, d_model, device=device, requires_grad=backward)
    heads = torch.randn(3, B, T, n_heads, d_model // n_heads, device=device).transpose(2, 3)
    q, k, v = (part.requires_grad_(backward) for part in heads)
    mha = MultiHeadAttention(d_model, n_heads).to(device).train(backward)
    block, theirs = MinimalBlock(mha), mha.to_torch()
    mask = padding_mask(torch.linspace(T // 4, T, B, device=device).long(), T)
    keep, how = ~mask, {"key_padding_mask": mask[:, 0, 0]}
    modules: dict[str, Callable] = {
        "base": lambda: block(x, keep),
        "module": lambda: mha(x, mask=mask),
        "nn.MHA": lambda: theirs(x, x, x, need_weights=False, **how)[0],
        "module, weights": lambda: mha(x, mask=mask, return_weights=True)[0],
        "nn.MHA, weights": lambda: theirs(x, x, x, average_attn_weights=False, **how)[0],
    }
    functions: dict[str, Callable] = {
        "base": lambda: F.scaled_dot_product_attention(q, k, v, attn_mask=keep),
        "function": lambda: scaled_dot_product_attention(q, k, v, mask),
    }
    found, bases = {}, []
    for calls in (modules, functions):
        base, samples = in_turns({name: timer(c, x, backward) for name, c in calls.items()})
        found |= {name: ratio(taken, base) for name, taken in samples.items()}
        bases.append(statistics.median(base))
    return bases[0], found


def padding(device: str) -> None:
    """A batch of several lengths, beside PyTorch's function with a mask turned round before."""
    print("\nA padded batch, float32: the modules beside the minimal block, the function beside")
    print("F.scaled_dot_product_attention, both with a mask where True = keep, made beforehand:\n")
    columns = ["module", "nn.MHA", "function", "module, weights", "nn.MHA, weights"]
    print_header("B, T, d_model, h", "pass", "base, ms", *columns)
    torch.backends.mha.set_fastpath_enabled(False)
    for size, backward in product(PADDED, (False, True)):
        base, ratios = padded(size, device, backward)
        cells = [f"{ratios[name]:.2f}" for name in columns]
        way = "forward + backward" if backward else "forward"
        print_row(", ".join(map(str, size)), way, f"{1e3 * base:.3g}", *cells)


def small_calls(device: str, backward: bool) -> dict[str, dict[str, Callable]]:
    B, T, d_model, h = SIZES[0]
    x = torch.randn(B, T, d_model, device=device, requires_grad=backward)
    qkv = torch.randn(3, B, h, T, d_model // h, device=device, requires_grad=backward).unbind()
    mha = MultiHeadAttention(d_model, h).to(device).train(backward)
    theirs = partial(mha.to_torch(), x, x, x, average_attn_weights=False)
    function = {
        "PyTorch": partial(torch._scaled_dot_product_attention_math, *qkv),
        "ours": partial(scaled_dot_product_attention, *qkv, return_weights=True),
        "least code": partial(least_function, *qkv),
    }
    module = {
        "PyTorch": theirs,
        "ours": partial(mha, x, return_weights=True),
        "least code": partial(MinimalBlock(mha).with_weights, x),
    }
    return {"function": function, "module": module if backward else module | {FAST: theirs}}


FAST = "PyTorch, fast path"


def small(device: str) -> None:
    """What a call costs beside its arithmetic: one by one, in turns, the lowest decile."""
    size = ", ".join(map(str, SIZES[0]))
    print(f"\nWith weights, B, T, d_model, h = {size}, float32, single calls in turns, µs:\n")
    columns = ["PyTorch", "ours", "least code", FAST]
    print_header("", "pass", *columns)
    for backward in (True, False):
        for what, calls in small_calls(device, backward).items():
            taken: dict[str, list[float]] = {name: [] for name in calls}
            for name in random.Random(0).choices(list(calls), k=3000 * len(calls)):
                torch.backends.mha.set_fastpath_enabled(name == FAST)
                run = partial(forward_and_back, calls[name]) if backward else calls[name]
                with torch.set_grad_enabled(backward):
                    taken[name].append(seconds_of(run, device))
            cells = [f"{1e6 * lowest_decile(taken[c]):.0f}" if c in taken else "–" for c in columns]
            print_row(what, "forward + backward" if backward else "forward", *cells)


def forward_and_back(call: Callable[[], tuple[Tensor, Tensor]]) -> None:
    call()[0].sum().backward()


N_WRITTEN = 32
WRITERS = [  # B, d_model, h, h_kv, tokens held, window
    (1, 64, 4, 4, 256, None),
    (1, 64, 4, 4, 1024, None),
    (1, 512, 8, 8, 1024, None),
    (1, 512, 8, 2, 1024, None),
    (1, 512, 8, 8, 1024, 256),
    (8, 512, 8, 8, 1024, None),
    (8, 512, 8, 8, 1024, 256),
]


@torch.no_grad()
def writing(size: tuple[int, ...], rope_base: float | None, device: str) -> tuple[float, dict]:
    """Milliseconds a token of the least code, and the others' ratios to it, least by least."""
    B, d_model, h, h_kv, n_held, window = size
    layer = GroupedQueryAttention(d_model, h, h_kv, rope_base=rope_base, window=window)
    layer = layer.to(device).eval()
    x = torch.randn(B, n_held + N_WRITTEN, d_model, device=device)
    steps, least = x[:, n_held:].split(1, dim=1), LeastCode(layer, B, n_held + N_WRITTEN)
    full = KVCache()
    layer(x[:, :n_held], full)
    _, k, v = least.heads(x[:, :n_held], 0)
    makers: dict[str, Callable[[], Callable[[Tensor, int], Tensor]]] = {
        "base": lambda: least,
        "ours": lambda: partial(one_step, layer, deepcopy(full)),
    }
    least.k[:, :, :n_held], least.v[:, :, :n_held] = k, v
    if window is None:
        for name, make in caches_of_transformers(layer, n_held + N_WRITTEN).items():
            makers[name] = partial(filled, make, least, k, v)
    taken: dict[str, list[float]] = {name: [] for name in makers}
    for _ in range(15):
        writers = {name: make() for name, make in makers.items()}
        for i, token in enumerate(steps):
            for name, step in writers.items():  # they take turns, token by token
                taken[name].append(seconds_of(partial(step, token, n_held + i), device))
    least = {name: lowest_decile(seconds) for name, seconds in taken.items()}
    base = least.pop("base")
    return 1e3 * base, {name: seconds / base for name, seconds in least.items()}


def seconds_of(call: Callable[[], object], device: str) -> float:
    start = time.perf_counter()
    call()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start


def lowest_decile(seconds: list[float]) -> float:
    return sorted(seconds)[len(seconds) // 10]


def one_step(layer: GroupedQueryAttention, cache: KVCache, token: Tensor, n: int) -> Tensor:
    return layer(token, cache)


def caches_of_transformers(layer: GroupedQueryAttention, n_tokens: int) -> dict[str, Callable]:
    """Makers of its two caches, if the library is there."""
    try:
        from transformers import DynamicCache, LlamaConfig, StaticCache
    except ImportError:
        return {}
    config = LlamaConfig(
        num_hidden_layers=1,
        num_attention_heads=layer.n_heads,
        hidden_size=layer.d_model,
        num_key_value_heads=layer.n_kv_heads,
        head_dim=layer.d_k,
    )
    return {
        "DynamicCache": DynamicCache,
        "StaticCache": partial(StaticCache, config=config, max_cache_len=n_tokens),
    }


def filled(make: Callable, least: LeastCode, k: Tensor, v: Tensor) -> Callable:
    """A step of the least code with a cache of the library `transformers` that holds k and v."""
    cache = make()
    cache.update(k, v, 0, {"cache_position": torch.arange(k.shape[2], device=k.device)})

    def step(token: Tensor, n: int) -> Tensor:
        q, new_k, new_v = least.heads(token, n)
        at = torch.arange(n, n + 1, device=k.device)
        keys, values = cache.update(new_k, new_v, 0, {"cache_position": at})
        mask = None
        if keys.shape[2] > n + 1:  # a static cache gives all its places
            mask = (torch.arange(keys.shape[2], device=k.device) <= n)[None]
        return least.output(q, keys, values, attn_mask=mask)

    return step


def decoding(device: str) -> None:
    """`GroupedQueryAttention` beside the least code, and that with the caches of `transformers`."""
    print(f"\nOne token in eval mode, float32, the lowest decile of 15 × {N_WRITTEN}, in turns:\n")
    columns = ["ours", "DynamicCache", "StaticCache"]
    names = "B, d_model, h, h_kv, held, window"
    print_header(names, "rotated", "least code, ms", *columns)
    for size, base in product(WRITERS, (None, 10_000.0)):
        ms, ratios = writing(size, base, device)
        cells = [f"{ratios[name]:.2f}" if name in ratios else "–" for name in columns]
        print_row(", ".join(map(str, size)), "no" if base is None else "yes", f"{ms:.3g}", *cells)


class LeastModel:
    """Notebook 14's model in the least code that computes the same, with its numbers."""

    def __init__(self, model: smollm.SmolLM, n_tokens: int) -> None:
        self.model = model
        self.attentions = [LeastCode(layer.attention, 1, n_tokens) for layer in model.layers]

    def __call__(self, ids: Tensor, n: int) -> Tensor:
        """Scores of the last of the tokens from place n on: one token, or all without a cache."""
        model, size, eps = self.model, (smollm.D_MODEL,), smollm.EPS
        x = F.embedding(ids, model.words)
        for layer, least in zip(model.layers, self.attentions, strict=True):
            y = F.rms_norm(x, size, layer.norm_1.weight, eps)
            if ids.shape[1] == 1:
                x = x + least(y, n)
            else:
                q, k, v = least.heads(y, n)
                z = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
                x = x + least.w_o(z.transpose(1, 2).flatten(2))
            y = F.rms_norm(x, size, layer.norm_2.weight, eps)
            x = x + layer.down(F.silu(layer.gate(y)) * layer.up(y))
        return F.linear(F.rms_norm(x[:, -1], size, model.norm.weight, eps), model.words)


@torch.no_grad()
def writer(device: str) -> None:
    """Notebook 14's model beside the least code for the same layers."""
    began = time.process_time()
    model = smollm.load().to(device)
    print(
        f"\nThe writer of notebook 14: loaded in {time.process_time() - began:.1f} s of processor"
    )
    ids, least = model.encode(northanger_abbey()[3000:5000])[:, :128], LeastModel(model, 128)
    caches = model.caches()
    model(ids[:, :-1], caches)
    for layer, cache in zip(least.attentions, caches, strict=True):
        layer.k[:, :, :127], layer.v[:, :, :127] = cache.keys, cache.values
    one, all_ = ids[:, -1:], ids
    assert torch.allclose(least(one, 127), model(all_)[:, -1], atol=1e-3)

    calls = {
        "one token, 127 held": (lambda: least(one, 127), lambda: model(one, deepcopy(caches))),
        "128 tokens, no cache": (lambda: least(all_, 0), lambda: model(all_)),
    }
    print_header("", "least code, ms", "ours")
    for name, both in calls.items():
        taken = [[seconds_of(call, device) for call in both] for _ in range(30)]  # in turns
        base, ours = (lowest_decile(list(row)) for row in zip(*taken, strict=True))
        print_row(name, f"{1e3 * base:.0f}", f"{ours / base:.2f}")


def memory(device: str) -> None:
    print("\nMemory of one forward pass at its peak, B, d_model, h = 1, 512, 8, float32, MiB:\n")
    print_header("T", "fused", "explicit", "nn.MHA, weights", "writing layer", "window 64")
    mha = MultiHeadAttention(512, 8).to(device).eval()
    layers = [GroupedQueryAttention(512, 8, 8, window=n).to(device) for n in (None, 64)]
    for T in (512, 1024, 2048, 4096, 8192):
        x = torch.randn(1, T, 512, device=device)
        calls = [partial(mha, x, causal=True, return_weights=which) for which in (False, True)]
        calls.append(partial(mha.to_torch(), x, x, x, average_attn_weights=False))
        calls += [partial(layer, x) for layer in layers]
        peaks = [cost.peak_bytes(call, x.device) for call in calls]
        print_row(str(T), *(f"{peak / 2**20:,.0f}" for peak in peaks))


PARTS = {
    "speed": speed,
    "padding": padding,
    "small": small,
    "decoding": decoding,
    "writer": writer,
    "memory": memory,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--only", choices=PARTS, help="default: all")
    args = parser.parse_args()
    name = torch.cuda.get_device_name() if args.device == "cuda" else "CPU"
    print(f"torch {torch.__version__}, {name}, {torch.get_num_threads()} CPU threads, causal\n")
    keep_freed_memory()
    for name in [args.only] if args.only else PARTS:
        PARTS[name](args.device)


if __name__ == "__main__":
    main()
