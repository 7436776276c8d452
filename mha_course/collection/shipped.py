"""Mistakes in attention that stood in public code, each as a change of one small class.

`shipped.toml` holds them: what a mistake does, the threads that report or mend it, and what it
changes in one of the two sources below. The course's notebook, its checks and the tests draw from
here, so a new one is one entry.
"""

import linecache
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import nn

from mha_lesson.refusals import say

ENTRIES = Path(__file__).with_name("shipped.toml")
IMPORTS = "import math\n\nimport torch\nimport torch.nn.functional as F\nfrom torch import nn\n\n\n"

# Right. `mask` is bool, True = blocked, and broadcasts to (B, h, T, T).
ATTENTION = """class Attention(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.w_q = nn.Linear(d_model, d_model)
        self.w_k = nn.Linear(d_model, d_model)
        self.w_v = nn.Linear(d_model, d_model)
        self.w_o = nn.Linear(d_model, d_model)

    def forward(self, x, mask=None):
        B, T, d_model = x.shape
        h, d_k = self.n_heads, d_model // self.n_heads
        q = self.w_q(x).view(B, T, h, d_k).transpose(1, 2)
        k = self.w_k(x).view(B, T, h, d_k).transpose(1, 2)
        v = self.w_v(x).view(B, T, h, d_k).transpose(1, 2)
        scores = q @ k.mT / math.sqrt(d_k)
        if mask is not None:
            scores = scores.masked_fill(mask, torch.finfo(scores.dtype).min)
        weights = scores.softmax(dim=-1)
        if mask is not None:
            weights = weights.masked_fill(mask, 0.0)
        context = weights @ v
        context = context.transpose(1, 2).reshape(B, T, d_model)
        return self.w_o(context)
"""

# Right, with what a writing model adds: positions, shared keys, a window, a cache.
WRITER = """class Writer(nn.Module):
    def __init__(self, d_model, n_heads, n_kv_heads, window):
        super().__init__()
        self.n_heads, self.n_kv_heads, self.window = n_heads, n_kv_heads, window
        d_k = d_model // n_heads
        self.w_q = nn.Linear(d_model, n_heads * d_k)
        self.w_k = nn.Linear(d_model, n_kv_heads * d_k)
        self.w_v = nn.Linear(d_model, n_kv_heads * d_k)
        self.w_o = nn.Linear(n_heads * d_k, d_model)

    def forward(self, x, cache=None):
        B, T, d_model = x.shape
        h, h_kv, d_k = self.n_heads, self.n_kv_heads, d_model // self.n_heads
        held = 0 if cache is None else cache[0].shape[2]
        q = self.w_q(x).view(B, T, h, d_k).transpose(1, 2)
        k = self.w_k(x).view(B, T, h_kv, d_k).transpose(1, 2)
        v = self.w_v(x).view(B, T, h_kv, d_k).transpose(1, 2)
        q = self.rotate(q, torch.arange(held, held + T))
        k = self.rotate(k, torch.arange(held, held + T))
        if cache is not None:
            k, v = torch.cat((cache[0], k), dim=2), torch.cat((cache[1], v), dim=2)
        cache = k, v
        k = k.repeat_interleave(h // h_kv, dim=1)
        v = v.repeat_interleave(h // h_kv, dim=1)
        distance = torch.arange(held, held + T)[:, None] - torch.arange(held + T)
        mask = (distance < 0) | (distance >= self.window)
        scores = q @ k.mT / math.sqrt(d_k)
        weights = scores.masked_fill(mask, -math.inf).softmax(dim=-1)
        context = (weights @ v).transpose(1, 2).reshape(B, T, d_model)
        return self.w_o(context), cache

    def rotate(self, x, positions):
        half = x.shape[-1] // 2
        speed = 10_000.0 ** (-torch.arange(half) / half)
        angle = positions[:, None] * speed
        a, b = x.chunk(2, dim=-1)
        turned = a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()
        return torch.cat(turned, dim=-1)
"""
SOURCES = {"Attention": ATTENTION, "Writer": WRITER}


@dataclass(frozen=True)
class Bug:
    """A mistake that stood in published code.

    Attributes:
        name, kind: its own, and what it is one of: "scale", "mask applied", …
        does: what comes out, in one sentence.
        threads: where it was reported or mended, "owner/repository#number".
        summary: what the first of them says, in our words.
        mended: whether it was, in that repository.
        changes: (old, new) lines of the source that it stands in.
        base: the class that it changes, "Attention" or "Writer".
    """

    name: str
    kind: str
    does: str
    threads: Sequence[str]
    summary: str
    mended: bool
    changes: Sequence[Sequence[str]]
    base: str = "Attention"

    @property
    def source(self) -> str:
        """The whole class with the mistake in it."""
        text = SOURCES[self.base]
        for old, new in self.changes:
            if text.count(old) != 1:
                raise ValueError(f"{self.name}: {old!r} must stand once in the source.")
            text = text.replace(old, new)
        return text

    @property
    def build(self) -> type[nn.Module]:
        """The class, with its source where `inspect` finds it."""
        return _compiled(self.name, self.source, self.base)


@dataclass(frozen=True)
class NotABug:
    """A report of a mistake that is none: what it claims, and why that is no mistake."""

    name: str
    claim: str
    why: str
    threads: Sequence[str]


@cache
def _compiled(name: str, source: str, base: str) -> type[nn.Module]:
    file = f"<shipped {name}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    namespace: dict[str, Any] = {"__name__": f"{__name__}.{name}"}
    exec(IMPORTS, namespace)
    exec(compile(source, file, "exec"), namespace)
    return namespace[base]


def right(base: str = "Attention") -> type[nn.Module]:
    """The class without a mistake."""
    return _compiled("right", SOURCES[base], base)


@cache
def bugs() -> Mapping[str, Bug]:
    """Every mistake by its name, in the order of the file."""
    entries = tomllib.loads(ENTRIES.read_text(encoding="utf-8"))["bug"]
    return {name: Bug(name, **entry) for name, entry in entries.items()}


@cache
def not_bugs() -> Mapping[str, NotABug]:
    """Every misunderstanding by its name."""
    entries = tomllib.loads(ENTRIES.read_text(encoding="utf-8"))["not_a_bug"]
    return {name: NotABug(name, **entry) for name, entry in entries.items()}


def bug(name: str) -> Bug:
    """One mistake.

    >>> bug("scale_forgotten").does
    'The scores are not divided by √d_k.'

    Raises:
        ValueError: there is none of this name.
    """
    if name not in bugs():
        raise ValueError(f"name must be one of {say(sorted(bugs()))}; got {name!r}.")
    return bugs()[name]


def with_same_weights(cls: type[nn.Module], other: nn.Module, *sizes: int) -> nn.Module:
    """A module of this class with the other's weights, in its mode."""
    module = cls(*sizes)
    module.load_state_dict(other.state_dict())
    return module.to(next(other.parameters())).train(other.training)


def draw(*shape: int, seed: int) -> torch.Tensor:
    """Normal numbers in float64, the same for the same seed."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
