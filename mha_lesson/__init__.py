"""Multi-head attention to learn from: `attention` is the subject, everything else serves it."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from mha_lesson.attention import (
    MultiHeadAttention,
    merge_heads,
    scaled_dot_product_attention,
    split_heads,
)
from mha_lesson.decoding import GroupedQueryAttention, KVCache, rotate
from mha_lesson.masks import causal_mask, padding_mask
from mha_lesson.runtime import device, settle_in_a_kernel

if TYPE_CHECKING:
    from mha_lesson import check, explore
    from mha_lesson.comparison import compare

__all__ = [
    "GroupedQueryAttention",
    "KVCache",
    "MultiHeadAttention",
    "causal_mask",
    "check",
    "compare",
    "device",
    "explore",
    "merge_heads",
    "padding_mask",
    "rotate",
    "scaled_dot_product_attention",
    "split_heads",
]

settle_in_a_kernel()


def __getattr__(name: str) -> Any:
    """What not everybody needs is imported when first asked for: matplotlib takes a second."""
    if name in ("check", "explore"):
        return import_module(f"{__name__}.{name}")
    if name == "compare":
        return import_module(f"{__name__}.comparison").compare
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
