"""Multi-head attention to learn from: `attention` is the subject, everything else serves it."""

from mha_lesson.attention import (
    MultiHeadAttention,
    merge_heads,
    scaled_dot_product_attention,
    split_heads,
)
from mha_lesson.cache import KVCache
from mha_lesson.decoding import GroupedQueryAttention
from mha_lesson.masks import causal_mask, padding_mask
from mha_lesson.rotation import rotate
from mha_lesson.runtime import configure_kernel, device

__all__ = [
    "GroupedQueryAttention",
    "KVCache",
    "MultiHeadAttention",
    "causal_mask",
    "device",
    "merge_heads",
    "padding_mask",
    "rotate",
    "scaled_dot_product_attention",
    "split_heads",
]

configure_kernel()
