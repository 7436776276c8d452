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
import inspect
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import partial
from itertools import product
from typing import Any

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
TURNS = random.Random(0)
PASSES = {False: "forward", True: "forward + backward"}
SIZE = "B, T, d_model, h"
Rows = Iterator[dict[str, Any]]  # of a table; its columns are those of the first row


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
    """What takes turns, by name: functions without arguments."""
    _, T, d_model, n_heads = size
    mha = MultiHeadAttention(d_model, n_heads).to(x).train(backward)
    block = MinimalBlock(mha)
    theirs = partial(mha.to_torch(), x, x, x, attn_mask=causal_mask(T, x.device))
    calls = {
        "base": partial(block, x),
        "block": partial(block, x),
        "fused": partial(mha, x, causal=True),
        "explicit": partial(mha, x, causal=True, return_weights=True),
        "torch": partial(theirs, need_weights=False, is_causal=True),
        "torch, weights": partial(theirs, average_attn_weights=False),
    }
    if not backward:
        calls["torch, fast path"] = calls["torch, weights"]
    return calls


def keep_freed_memory() -> None:
    """Tells the C library (glibc) to hand no freed memory back to the system."""
    if sys.platform == "linux":
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(-4, 0)  # M_MMAP_MAX: large tensors too come from the heap
        mallopt(-1, 2**31 - 1)  # M_TRIM_THRESHOLD: the heap does not shrink


def seconds_of(name: str, call: Callable, backward: bool = False, repeats: int = 1) -> float:
    """Of one call, and of its backward pass; the name says whether PyTorch's fast path is taken."""
    torch.backends.mha.set_fastpath_enabled("fast path" in name)
    wait = torch.cuda.synchronize if torch.cuda.is_initialized() else int
    with torch.set_grad_enabled(backward):
        wait()
        start = time.perf_counter()
        for _ in range(repeats):
            out = call()
            if backward:
                (out[0] if isinstance(out, tuple) else out).sum().backward()
        wait()
        return (time.perf_counter() - start) / repeats


def in_turns(calls: dict[str, Callable], backward: bool) -> dict[str, list[float]]:
    """Seconds by name, round after round."""
    for name, call in calls.items():
        seconds_of(name, call, backward, 2)  # warm up
    one_round = sum(seconds_of(name, call, backward) for name, call in calls.items())
    repeats = max(1, round(0.02 * len(calls) / one_round))  # a sample takes 20 ms or more
    rounds = min(51, max(15, round(BUDGET / (one_round * repeats))))
    samples: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name in TURNS.sample([*calls], len(calls)):  # nobody always follows the same one
            samples[name].append(seconds_of(name, calls[name], backward, repeats))
    return samples


def one_by_one(calls: dict[str, Callable], n: int, backward: bool = False) -> dict[str, float]:
    """The lowest decile of about n single calls, by name."""
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for name in TURNS.choices([*calls], k=n * len(calls)):
        taken[name].append(seconds_of(name, calls[name], backward))
    return lowest_deciles(taken)


def ratio(taken: list[float], base: list[float]) -> float:
    return statistics.median(a / b for a, b in zip(taken, base, strict=True))


def lowest_deciles(samples: dict[str, list[float]]) -> dict[str, float]:
    return {name: sorted(seconds)[len(seconds) // 10] for name, seconds in samples.items()}


def beside_least_code(seconds: dict[str, float]) -> dict[str, Any]:
    """Milliseconds of "base", and the others' ratios to it."""
    base = seconds.pop("base")
    ratios = {name: taken / base for name, taken in seconds.items()}
    return {"least code, ms": f"{1e3 * base:.3g}", **ratios}


def beside_block(samples: dict[str, list[float]]) -> dict[str, Any]:
    """Milliseconds of "base", and the others' ratios to it."""
    base = samples["base"]
    ratios = {name: ratio(taken, base) for name, taken in samples.items() if name != "base"}
    return {"base, ms": f"{1e3 * statistics.median(base):.3g}", **ratios}


def speed(device: str) -> Rows:
    """Beside the minimal block, its milliseconds and ratios to it:

    - block: the minimal block against itself, the noise of this run
    - fused: mha_lesson, without weights
    - explicit: mha_lesson, with every head's weights
    - torch: nn.MultiheadAttention(need_weights=False)
    - torch, weights: nn.MultiheadAttention(average_attn_weights=False)
    - torch, fast path: the same in its evaluation fast path (forward only)
    """
    for (name, dtype), size, backward in product(DTYPES.items(), SIZES, PASSES):
        x = torch.randn(*size[:3], dtype=dtype, device=device, requires_grad=backward)
        samples = in_turns(contestants(size, x, backward), backward)
        begins = {SIZE: size, "dtype": name, "pass": PASSES[backward]}
        pair = {"explicit : torch, weights": ratio(samples["explicit"], samples["torch, weights"])}
        yield begins | beside_block(samples) | pair


PADDED = [(4, 16, 64, 4), (8, 64, 256, 8), (8, 128, 512, 8), (4, 512, 512, 8)]


def padding(device: str) -> Rows:
    """A padded batch, float32: the modules beside the minimal block, the function beside
    F.scaled_dot_product_attention, both with a mask where True = keep, made beforehand:
    """
    for size, backward in product(PADDED, PASSES):
        B, T, d_model, n_heads = size
        x = torch.randn(B, T, d_model, device=device, requires_grad=backward)
        heads = torch.randn(3, B, T, n_heads, d_model // n_heads, device=device).transpose(2, 3)
        q, k, v = (part.requires_grad_(backward) for part in heads)
        mha = MultiHeadAttention(d_model, n_heads).to(device).train(backward)
        mask = padding_mask(torch.linspace(T // 4, T, B, device=device).long(), T)
        theirs = partial(mha.to_torch(), x, x, x, key_padding_mask=mask[:, 0, 0])
        modules = {
            "base": partial(MinimalBlock(mha), x, ~mask),
            "module": partial(mha, x, mask=mask),
            "nn.MHA": partial(theirs, need_weights=False),
            "module, weights": partial(mha, x, mask=mask, return_weights=True),
            "nn.MHA, weights": partial(theirs, average_attn_weights=False),
        }
        functions = {
            "base": partial(F.scaled_dot_product_attention, q, k, v, attn_mask=~mask),
            "function": partial(scaled_dot_product_attention, q, k, v, mask),
        }
        found = [beside_block(in_turns(calls, backward)) for calls in (functions, modules)]
        yield {SIZE: size, "pass": PASSES[backward]} | found[0] | found[1]


def small(device: str) -> Rows:
    """With weights, B, T, d_model, h = 1, 16, 64, 4, float32: what a call costs beside its
    arithmetic, single calls in turns, the lowest decile, µs:
    """
    B, T, d_model, h = SIZES[0]
    for backward in PASSES:
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
            **({} if backward else {"PyTorch, fast path": theirs}),
        }
        for what, calls in {"module": module, "function": function}.items():
            least = one_by_one(calls, 3000, backward)
            figures = {name: round(1e6 * taken) for name, taken in least.items()}
            yield {"": what, "pass": PASSES[backward]} | figures


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
def decoding(device: str) -> Rows:
    """One token in eval mode, float32, beside the least code, the lowest decile of 15 × 32:"""
    for size, rope_base in product(WRITERS, (None, 10_000.0)):
        B, d_model, h, h_kv, n_held, window = size
        layer = GroupedQueryAttention(d_model, h, h_kv, rope_base=rope_base, window=window)
        layer = layer.to(device).eval()
        x = torch.randn(B, n_held + N_WRITTEN, d_model, device=device)
        steps, least = x[:, n_held:].split(1, dim=1), LeastCode(layer, B, n_held + N_WRITTEN)
        full = KVCache()
        layer(x[:, :n_held], full)
        _, k, v = least.heads(x[:, :n_held], 0)
        makers: dict[str, Callable[[], Callable[[Tensor, int], Tensor]]] = {
            "base": lambda least=least: least,
            "ours": lambda layer=layer, full=full: partial(layer, cache=deepcopy(full)),
        }
        least.k[:, :, :n_held], least.v[:, :, :n_held] = k, v
        if window is None:
            for name, make in caches_of_transformers(layer, n_held + N_WRITTEN).items():
                makers[name] = partial(filled, make, least, k, v)
        taken: dict[str, list[float]] = {name: [] for name in makers}
        for _ in range(15):
            writers = {name: make() for name, make in makers.items()}
            for n, token in enumerate(steps, n_held):  # they take turns, token by token
                for name, step in writers.items():
                    places = () if name == "ours" else (n,)  # its cache knows the place
                    taken[name].append(seconds_of(name, partial(step, token, *places)))
        rotated = "no" if rope_base is None else "yes"
        begins = {"B, d_model, h, h_kv, held, window": size, "rotated": rotated}
        yield begins | beside_least_code(lowest_deciles(taken))


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
def writer(device: str) -> Rows:
    """The writer of notebook 14 beside the least code for the same layers:"""
    began = time.process_time()
    model = smollm.load().to(device)
    print(f"loaded in {time.process_time() - began:.1f} s of processor\n")
    ids, least = model.encode(northanger_abbey()[3000:5000])[:, :128], LeastModel(model, 128)
    caches = model.caches()
    model(ids[:, :-1], caches)
    for layer, cache in zip(least.attentions, caches, strict=True):
        layer.k[:, :, :127], layer.v[:, :, :127] = cache.keys, cache.values
    one = ids[:, -1:]
    assert torch.allclose(least(one, 127), model(ids)[:, -1], atol=1e-3)
    for what, base, ours in (
        ("one token, 127 held", partial(least, one, 127), lambda: model(one, deepcopy(caches))),
        ("128 tokens, no cache", partial(least, ids, 0), partial(model, ids)),
    ):
        yield {"": what} | beside_least_code(one_by_one({"base": base, "ours": ours}, 30))


def memory(device: str) -> Rows:
    """Memory of one forward pass at its peak, B, d_model, h = 1, 512, 8, float32, MiB:"""
    mha = MultiHeadAttention(512, 8).to(device).eval()
    layers = [GroupedQueryAttention(512, 8, 8, window=n).to(device) for n in (None, 64)]
    for T in (512, 1024, 2048, 4096, 8192):
        x = torch.randn(1, T, 512, device=device)
        calls = {
            "fused": partial(mha, x, causal=True),
            "explicit": partial(mha, x, causal=True, return_weights=True),
            "nn.MHA, weights": partial(mha.to_torch(), x, x, x, average_attn_weights=False),
            "writing layer": partial(layers[0], x),
            "window 64": partial(layers[1], x),
        }
        peaks = {name: cost.peak_bytes(call, x.device) for name, call in calls.items()}
        yield {"T": T} | {name: round(peak / 2**20) for name, peak in peaks.items()}


def cell(value: Any) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    return f"{value:.2f}" if isinstance(value, float) else str(value)


def print_table(part: Callable[[str], Rows], device: str) -> None:
    print(f"\n{inspect.getdoc(part)}\n")
    columns: list[str] = []
    for row in part(device):
        if not columns:
            columns = [*row]
            print("|", " | ".join(columns), "|")
            print("|" + "---|" * len(columns))
        print("|", " | ".join(cell(row.get(name, "–")) for name in columns), "|", flush=True)


PARTS = {part.__name__: part for part in (speed, padding, small, decoding, writer, memory)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--only", choices=PARTS, help="default: all")
    args = parser.parse_args()
    name = torch.cuda.get_device_name() if args.device == "cuda" else "CPU"
    print(f"torch {torch.__version__}, {name}, {torch.get_num_threads()} CPU threads, causal")
    keep_freed_memory()
    for name in [args.only] if args.only else PARTS:
        print_table(PARTS[name], args.device)


if __name__ == "__main__":
    main()
