"""What a type checker must know of each call: read by one, never run."""

from typing import assert_type

from torch import Tensor

from mha_lesson import (
    GroupedQueryAttention,
    KVCache,
    MultiHeadAttention,
    scaled_dot_product_attention,
)

Pair = tuple[Tensor, Tensor]


def function(x: Tensor, flag: bool) -> None:
    assert_type(scaled_dot_product_attention(x, x, x, causal=True), Tensor)
    assert_type(scaled_dot_product_attention(x, x, x, return_weights=True), Pair)
    assert_type(scaled_dot_product_attention(x, x, x, x, return_weights=flag), Tensor | Pair)


def module(mha: MultiHeadAttention, x: Tensor, flag: bool) -> None:
    assert_type(mha(x), Tensor)
    assert_type(mha(x, x, x, x, return_weights=True), Pair)
    assert_type(mha(x, causal=True, return_weights=flag), Tensor | Pair)


def layer(grouped: GroupedQueryAttention, x: Tensor, flag: bool) -> None:
    assert_type(grouped(x, KVCache()), Tensor)
    assert_type(grouped(x, mask=x, return_weights=True), Pair)
    assert_type(grouped(x, return_weights=flag), Tensor | Pair)
