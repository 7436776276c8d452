"""Every refusal of the core is ours: it names the argument, what was expected and what came."""

import re

import numpy as np
import pytest
import torch
from torch import nn

from mha_lesson import (
    MultiHeadAttention,
    merge_heads,
    padding_mask,
    scaled_dot_product_attention,
    split_heads,
)

pytestmark = pytest.mark.plain  # what learners see, without pytest's own type checker in front


def zeros(*shape, dtype=torch.float32, device="cpu"):
    return torch.zeros(*shape, dtype=dtype, device=device)


def refused(error, *words, call):
    """The call raises exactly this error, in a sentence that holds all these words."""
    with pytest.raises(error) as caught:
        call()
    assert type(caught.value) is error
    for word in words:
        assert word in str(caught.value), f"{word!r} not in {str(caught.value)!r}"
    assert re.search(r"\.$", str(caught.value)), "a sentence ends in a full stop"


Q, K, V = zeros(2, 3, 5, 7), zeros(2, 3, 11, 7), zeros(2, 3, 11, 13)


@pytest.mark.parametrize(
    ("error", "words", "arguments"),
    [
        (TypeError, ["query", "tensor", "(..., T_q, d_k)", "list"], ([[1.0]], K, V)),
        (TypeError, ["key", "tensor", "NoneType"], (Q, None, V)),
        (TypeError, ["value", "tensor", "ndarray"], (Q, K, np.zeros((2, 3, 11, 13)))),
        (TypeError, ["query", "floating", "int64", "(2, 3, 5, 7)"], (Q.long(), K, V)),
        (TypeError, ["value", "floating", "bool"], (Q, K, V.bool())),
        (TypeError, ["query", "floating", "complex64"], (Q.to(torch.complex64), K, V)),
        (TypeError, ["query", "key", "dtype", "float32", "float64"], (Q, K.double(), V)),
        (TypeError, ["query", "value", "dtype", "float32", "float16"], (Q, K, V.half())),
        (ValueError, ["query", "key", "device", "cpu", "meta"], (Q, K.to("meta"), V)),
        (ValueError, ["query", "2, 3 or 4 axes", "(7,)"], (zeros(7), K, V)),
        (ValueError, ["query", "2, 3 or 4 axes"], (zeros(1, 1, 1, 1, 1), K, V)),
        (ValueError, ["query", "key", "as many axes", "(3, 11, 7)"], (Q, K[0], V)),
        (ValueError, ["query", "key", "batch B", "(2, 3, 5, 7)", "(1, 3, 11, 7)"], (Q, K[:1], V)),
        (ValueError, ["query", "value", "heads h", "(2, 2, 11, 13)"], (Q, K, V[:, :2])),
        (ValueError, ["query", "key", "d_k", "(2, 3, 11, 6)"], (Q, K[..., :6], V)),
        (ValueError, ["d_k > 0"], (Q[..., :0], K[..., :0], V)),
        (ValueError, ["key", "value", "T_k", "(2, 3, 10, 13)"], (Q, K, V[:, :, :10])),
    ],
)
@pytest.mark.parametrize("return_weights", [False, True])
def test_inputs_of_the_function(error, words, arguments, return_weights):
    refused(
        error,
        *words,
        call=lambda: scaled_dot_product_attention(*arguments, return_weights=return_weights),
    )


@pytest.mark.parametrize(
    ("error", "words", "mask"),
    [
        (TypeError, ["bool", "float32", "True means blocked"], zeros(5, 11)),
        (TypeError, ["bool", "int64"], zeros(5, 11).long()),
        (TypeError, ["bool", "ndarray"], np.zeros((5, 11), bool)),
        (TypeError, ["bool", "list"], [[True]]),
        (ValueError, ["device", "cpu", "meta"], zeros(5, 11, device="meta").bool()),
        (ValueError, ["(T_q, T_k) = (5, 11)", "(11, 5)"], zeros(11, 5).bool()),
        (ValueError, ["(T_q, T_k) = (5, 11)", "(1, 11)"], zeros(1, 11).bool()),
        (ValueError, ["(B, T_q, T_k) = (2, 5, 11)", "(3, 5, 11)"], zeros(3, 5, 11).bool()),
        (ValueError, ["(B, T_q, T_k)", "(1, 5, 11)"], zeros(1, 5, 11).bool()),
        (ValueError, ["(B, h, T_q, T_k) = (2, 3, 5, 11)"], zeros(2, 2, 5, 11).bool()),
        (ValueError, ["four axes", "(2, 1, 1, 10)"], zeros(2, 1, 1, 10).bool()),
        (ValueError, ["four axes", "(11,)", "True means blocked"], zeros(11).bool()),
        (ValueError, ["four axes"], zeros(1, 1, 1, 5, 11).bool()),
    ],
)
@pytest.mark.parametrize("return_weights", [False, True])
def test_masks(error, words, mask, return_weights):
    refused(
        error,
        "mask",
        *words,
        call=lambda: scaled_dot_product_attention(Q, K, V, mask, return_weights=return_weights),
    )
    mha = MultiHeadAttention(7, 3, d_k=2)
    x, memory = zeros(2, 5, 7), zeros(2, 11, 7)
    refused(
        error,
        "mask",
        *words,
        call=lambda: mha(x, memory, mask=mask, return_weights=return_weights),
    )


def test_a_mask_per_head_for_inputs_without_heads():
    refused(
        ValueError,
        "mask",
        "(B, h, T_q, T_k) = (2, 1, 5, 11)",
        call=lambda: scaled_dot_product_attention(Q[:, 0], K[:, 0], V[:, 0], zeros(2, 3, 5, 11) > 0),
    )


def test_causal():
    refused(
        ValueError,
        "causal",
        "T_q = 5",
        "T_k = 11",
        call=lambda: scaled_dot_product_attention(Q, K, V, causal=True),
    )
    for value in (1, None, zeros(5, 5).bool()):
        refused(
            TypeError,
            "causal must be True or False",
            type(value).__name__ if not isinstance(value, torch.Tensor) else "(5, 5)",
            call=lambda value=value: scaled_dot_product_attention(Q, Q, Q, causal=value),
        )


@pytest.mark.parametrize("make", ["function", "class"])
def test_dropout(make):
    def call(value):
        if make == "function":
            return scaled_dot_product_attention(Q, K, V, dropout=value)
        return MultiHeadAttention(12, 3, dropout=value)

    for value in (-0.1, 1.0, 1, 7, float("nan")):
        refused(ValueError, "dropout", "[0, 1)", str(value), call=lambda value=value: call(value))
    for value in ("0.1", None, True):
        refused(TypeError, "dropout", "[0, 1)", call=lambda value=value: call(value))


@pytest.mark.parametrize("name", ["d_model", "n_heads", "d_k"])
def test_sizes(name):
    def call(value):
        return MultiHeadAttention(**{"d_model": 12, "n_heads": 3, name: value})

    for value in (0, -3):
        refused(ValueError, name, "positive integer", str(value), call=lambda v=value: call(v))
    for value in (2.0, "3", True, torch.tensor(3)):
        refused(TypeError, name, "positive integer", call=lambda v=value: call(v))
    assert call(np.int64(3)).n_heads == 3


def test_divisibility():
    words = ("d_model", "n_heads", "13", "5", "rest of 3")
    refused(ValueError, *words, call=lambda: MultiHeadAttention(13, 5))
    refused(ValueError, *words, call=lambda: split_heads(zeros(2, 7, 13), 5))
    assert MultiHeadAttention(13, 5, d_k=2).d_k == 2


def test_splitting_and_merging():
    refused(ValueError, "x", "3 axes", "(5, 12)", call=lambda: split_heads(zeros(5, 12), 3))
    refused(TypeError, "x", "tensor", "list", call=lambda: split_heads([1.0], 3))
    refused(TypeError, "n_heads", "float 3.0", call=lambda: split_heads(zeros(2, 5, 12), 3.0))
    refused(ValueError, "n_heads", "0", call=lambda: split_heads(zeros(2, 5, 12), 0))
    refused(ValueError, "x", "4 axes", "(2, 5, 12)", call=lambda: merge_heads(zeros(2, 5, 12)))
    refused(TypeError, "x", "tensor", "NoneType", call=lambda: merge_heads(None))


X, MEMORY = zeros(2, 5, 12), zeros(2, 11, 12)


@pytest.mark.parametrize(
    ("error", "words", "arguments"),
    [
        (TypeError, ["query", "tensor", "list"], ([1.0],)),
        (TypeError, ["key", "tensor", "str"], (X, "memory")),
        (TypeError, ["value", "tensor", "int"], (X, X, 3)),
        (ValueError, ["query", "(B, T_q, d_model)", "(12,)"], (zeros(12),)),
        (ValueError, ["query", "without B", "(1, 2, 5, 12)"], (X[None],)),
        (ValueError, ["query", "d_model = 12", "(2, 5, 13)"], (zeros(2, 5, 13),)),
        (ValueError, ["key", "d_model = 12", "(2, 5, 11)"], (X, zeros(2, 5, 11))),
        (ValueError, ["value", "d_model = 12"], (X, X, zeros(2, 5, 11))),
        (TypeError, ["query", "float32", "float64"], (X.double(),)),
        (TypeError, ["query", "float32", "int64"], (X.long(),)),
        (TypeError, ["key", "float32", "float16"], (X, X.half())),
        (ValueError, ["query", "device", "cpu", "meta"], (X.to("meta"),)),
        (ValueError, ["key", "batch size B", "(3, 5, 12)"], (X, zeros(3, 5, 12))),
        (ValueError, ["key", "or both none", "(5, 12)"], (X, X[0])),
        (ValueError, ["key", "or both none", "(2, 5, 12)"], (X[0], X)),
        (ValueError, ["value", "batch size B"], (X, X, X[:1])),
        (ValueError, ["key", "value", "T_k", "(2, 10, 12)"], (X, MEMORY, MEMORY[:, 1:])),
    ],
)
def test_inputs_of_the_module(error, words, arguments):
    refused(error, *words, call=lambda: MultiHeadAttention(12, 3)(*arguments))


def test_causal_in_the_module():
    mha = MultiHeadAttention(12, 3)
    refused(ValueError, "causal", "T_q = 5", call=lambda: mha(X, MEMORY, causal=True))


def test_autocast_does_not_excuse_integers():
    with torch.autocast("cpu", dtype=torch.bfloat16):
        refused(TypeError, "query", "int64", call=lambda: MultiHeadAttention(12, 3)(X.long()))


def test_from_torch():
    def convert(*sizes, **options):
        return lambda: MultiHeadAttention.from_torch(nn.MultiheadAttention(*sizes, **options))

    refused(TypeError, "nn.MultiheadAttention", "Linear",
            call=lambda: MultiHeadAttention.from_torch(nn.Linear(2, 3)))  # fmt: skip
    refused(ValueError, "kdim = 7", "vdim = 12", call=convert(12, 3, kdim=7))
    refused(ValueError, "add_bias_kv", call=convert(12, 3, add_bias_kv=True))
    refused(ValueError, "add_zero_attn", call=convert(12, 3, add_zero_attn=True))


def test_to_torch():
    refused(ValueError, "n_heads * d_k = d_model", "3 * 5", "d_model = 12",
            call=lambda: MultiHeadAttention(12, 3, d_k=5).to_torch())  # fmt: skip


def test_a_padding_mask_of_another_length_says_which_convention_holds():
    mha = MultiHeadAttention(12, 3)
    refused(ValueError, "mask", "(2, 1, 1, 6)", "True means blocked",
            call=lambda: mha(X, mask=padding_mask([3, 5], 6)))  # fmt: skip


def test_long_values_are_cut():
    with pytest.raises(TypeError) as caught:
        split_heads("x" * 1000, 3)
    assert len(str(caught.value)) < 200
