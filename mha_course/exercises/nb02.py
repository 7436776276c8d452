"""Exercises 3 and 4, notebook 02: one fused projection, and how many weights there are."""

from collections.abc import Iterator
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from mha_course.engine.attempt import Attempt
from mha_course.engine.families import kinds_of_count, orders_of_results
from mha_course.engine.inputs import normal, strided, unchanged
from mha_course.engine.safely import fresh
from mha_course.exercises import Case, exercise


def tokens_and_weights() -> Iterator[Case]:
    rows = ((2, 4, 7), (1, 3, 2), (1, 7, 5), (3, 2, 7), (2, 3, 3), (3, 3, 3), (1, 1, 3), (2, 3, 1))
    for seed, (B, T, d_model) in enumerate(rows):
        sizes = {"B": B, "T": T, "d_model": d_model}
        X = normal(B, T, d_model, seed=seed)
        W = normal(3 * d_model, d_model, seed=seed + 20)
        yield Case((X, W), sizes)
        if seed == 0:
            yield Case((strided(X), strided(W)), sizes, "with X and W_qkv not contiguous")


PRODUCTS = {"matmul", "__matmul__", "__rmatmul__", "linear", "mm", "bmm", "einsum", "tensordot"}


class Products(TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[str, Any]] = []  # name, first argument

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if (name := getattr(func, "__name__", "")) in PRODUCTS:
            self.calls.append((name, args[0]))
        return func(*args, **(kwargs or {}))


def factors(attempt: Attempt) -> list[Any]:
    """The first argument of each matrix product that an answer takes on its first input."""
    with torch.no_grad(), Products() as products:
        attempt.bound.answer(*map(fresh, attempt.bound.cases[0].inputs))
    return [first for _, first in products.calls]


def several_products(attempt: Attempt) -> str:
    n = len(factors(attempt))
    asked = "*One* product is enough: all three thirds lie in one matrix."
    return f"It takes {n} products. {asked}" if n > 1 else ""


@exercise(
    3,
    "02",
    reread="Three matrices, or one?",
    remark=several_products,
    make_cases=tokens_and_weights,
    gives=("Q (B, T, d_model)", "K (B, T, d_model)", "V (B, T, d_model)"),
)
def project_qkv(X, W_qkv, *, product, cut, give):
    """X W_q^T, X W_k^T, X W_v^T, the rows of W_qkv stacked q, k, v."""
    parts = cut(product(X, W_qkv))
    return give(*parts) if len(parts) == 3 else parts


@project_qkv.step
def give(Q, K, V):
    """Which call cuts the last axis into three?"""
    not_cut = torch.cat([Q, K, V], -1)
    "One tensor is returned, (B, T, 3·d_model): it is not yet cut into Q, K and V."
    stacked = (torch.stack([Q, K, V], axis) for axis in (0, 1))
    """One tensor with a new axis for the three is returned instead of three tensors. | The exercise
    asks for a tuple of three. What takes a tensor apart along an axis?"""
    each_transposed = (Q.mT, K.mT, V.mT)
    """The three are transposed, (B, d_model, T). | Tokens in the middle, dimensions last: which
    product gives that?"""
    queries_scaled = (Q / Q.shape[-1] ** 0.5, K, V)
    """The queries are scaled by √d_model already: here they are only projected. | Where in
    softmax(Q Kᵀ / √d_k) V does the scale belong?"""
    return Q, K, V


@project_qkv.step
def cut(y):
    """Which axis of (B, T, 3·d_model) holds Q, K and V side by side?"""
    dealt_like_cards = (y[..., 0::3], y[..., 1::3], y[..., 2::3])
    """The columns are dealt out like cards: Q gets columns 0, 3, 6, … instead of the first d_model.
    | The rows of W_qkv stand in three *blocks*. Which columns of the product are Q's?"""
    cut_in_memory_order = tuple(y.reshape(3, *y.shape[:-1], -1))
    """The product is cut by `view` or `reshape` to (3, B, T, d_model): in memory each token's three
    parts lie together, so this mixes tokens and parts. | Which axis of (B, T, 3·d_model) has to be
    cut?"""
    cut_through_tokens = y.chunk(3, dim=1)
    "The cut goes through the tokens (dim 1), not through the last axis."
    cut_through_batch = y.chunk(3, dim=0)
    "The cut goes through the batch (dim 0), not through the last axis."
    thirds_as_tokens = y.reshape(y.shape[0], -1, y.shape[-1] // 3).chunk(3, dim=1)
    """Each token's three parts are laid below each other, as tokens, and the cut goes through
    those: Q gets the first of them, and parts of all three kinds."""
    pieces_of_three = y.split(3, -1)
    """`split(3)` makes pieces that are 3 *wide*, not 3 pieces. | Which number does `split` want,
    and which does `chunk`?"""
    return y.tensor_split(3, dim=-1)


project_qkv.step(
    orders_of_results("QKV", "The rows of W_qkv stand in the order Q, K, V. Which third is which?"),
    at="give",
)


@project_qkv.step
def product(X, W):
    weight_reshaped = X @ W.reshape(W.shape[1], W.shape[0])
    """W_qkv is not transposed but pressed into shape: `view` or `reshape` to (d_model, 3·d_model)
    keeps the numbers in their old order. | Which call exchanges two axes instead of refilling a
    shape?"""
    return X @ W.mT


@project_qkv.step(at="product", cut=unchanged)
def one_by_one(X, W):
    """What are all three made from?"""
    W_q, W_k, W_v = W.tensor_split(3)
    blocks_not_transposed = (X @ W_q, X @ W_k, X @ W_v)
    """W_qkv is cut into its three blocks correctly, but then each is used untransposed: X @ W
    instead of X @ Wᵀ. Square blocks fit either way, so nothing complains. | `nn.Linear` keeps a row
    for each *output*. Which axis of the block must match X's last?"""
    Q = X @ W_q.mT
    K = Q @ W_k.mT
    one_from_another = (Q, K, K @ W_v.mT)
    "K is made from Q, and V from K: each product starts from the one before."
    keys = X @ W_k.mT
    values_of_keys = (X @ W_q.mT, keys, keys @ W_v.mT)
    "V is made from the keys, which were projected already: x W_kᵀ W_vᵀ."
    values_not_projected = (X @ W_q.mT, X @ W_k.mT, X)
    "V is X itself: the values are not projected. | What are the last d_model rows of W_qkv for?"


def widths() -> Iterator[Case]:
    rows = ((7, 3, 5), (13, 2, 11), (512, 8, 64), (10, 5, 3), (11, 1, 3), (3, 7, 2), (12, 3, 4))
    for d_model, h, d_k in rows:
        yield Case((d_model, h, d_k), {"d_model": d_model, "n_heads": h, "d_k": d_k})
    note = "with d_model = 9, n_heads = 11 and d_k = 5"
    yield Case((9, 11, 5), {}, note, asks="Is there a division whose result is rounded down?")


@exercise(
    4, "02", reread="Counting parameters", make_cases=widths, gradient=False, gives=("count",)
)
def count_parameters(d_model, n_heads, d_k, *, inward, outward, biases, finish):
    """4 · d_model · h · d_k."""
    sizes = (d_model, n_heads, d_k)
    return finish(inward(*sizes) + outward(*sizes) + biases(*sizes))


@count_parameters.step
def inward(d_model, h, d_k):
    """d_k is free here: how wide is a token after W_q, if h heads take d_k dimensions each?"""
    square_inward = 3 * d_model**2
    "W_q, W_k and W_v are counted as d_model × d_model: that holds only where h · d_k = d_model."
    one_head_inward = 3 * d_model * d_k
    """W_q, W_k and W_v are counted for one head only: h is missing. | Does every head have its own
    projections?"""
    full_width_heads = 3 * h * d_model**2
    """Every head gets W_q, W_k and W_v of the full width, d_model × d_model. | How many dimensions
    does one head have?"""
    keys_and_values_once = d_model * h * d_k + 2 * d_model * d_k
    """W_k and W_v are counted for one head only, W_q for all of them. | Which of the three does
    every head have for itself?"""
    nothing_inward = 0
    "Only W_o is counted. | Which projections lead into the heads?"
    from_heads_to_heads = 3 * (h * d_k) ** 2
    """W_q, W_k and W_v are counted as (h·d_k) × (h·d_k): what they read is d_model wide. | What
    goes into W_q?"""
    return 3 * d_model * h * d_k


@count_parameters.step
def outward(d_model, h, d_k):
    two_projections = 0
    """Only three of the four matrices are counted. | Three lead into the heads, and one leads back.
    Which is missing?"""
    square_outward = d_model**2
    """W_o is counted as d_model × d_model: what it reads is h · d_k wide, which may differ. | How
    wide is the concatenation of h heads of d_k dimensions?"""
    one_head_outward = d_k * d_model
    "W_o is counted for one head only, d_k × d_model. | How wide is the concatenation of h heads?"
    outward_to_heads = (h * d_k) ** 2
    """W_o is counted as (h·d_k) × (h·d_k): it should lead back to d_model. | How wide is a token
    after W_o?"""
    square_outward_per_head = h * d_model**2
    "Every head gets a W_o of d_model × d_model. | How wide is what one head hands to W_o?"
    return h * d_k * d_model


@count_parameters.step
def biases(d_model, h, d_k):
    biases_in = 3 * h * d_k + d_model
    "The biases are counted too. | Does the exercise want them in or out?"
    inward_biases_in = 3 * h * d_k
    "The biases of W_q, W_k and W_v are counted too. | Does the exercise want them in or out?"
    biases_of_d_model = 4 * d_model
    "= biases_in"
    return 0


count_parameters.step(kinds_of_count, at="finish")


@count_parameters.step
def whole(d_model, n_heads, d_k):
    square_all = 4 * d_model**2
    """All four matrices are counted as d_model × d_model: that holds only where h · d_k = d_model.
    | d_k is free here: how wide is a token after W_q, if h heads take d_k dimensions each?"""
    one_head = 4 * d_model * d_k
    "One head only is counted: h is missing. | Does every head have its own projections?"
    d_k_for_d_model = 4 * n_heads * d_k**2
    """d_k stands where d_model should: every matrix is counted as d_k × d_k in each head. | How
    many numbers of a token does a head read?"""
    times_heads = 4 * d_model * n_heads**2 * d_k
    """The whole is multiplied by h once more. | Where does h already stand in the sizes of the
    matrices?"""
    tied_width = 4 * d_model * n_heads * (d_model // n_heads)
    """d_k is computed anew as d_model / h, and the one given is ignored. | The exercise gives d_k
    for a reason: it is free. Where does it enter?"""
    sizes_added = 4 * (d_model + n_heads * d_k)
    """Sizes are added where they should be multiplied. | How many numbers does a matrix with a rows
    and b columns have?"""
