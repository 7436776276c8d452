"""Exercises 3 and 4, notebook 02: one fused projection, and how many weights there are."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from mha_lesson.check.exercise import WHOLE, Case, exercise
from mha_lesson.check.inputs import normal, strided

Three = tuple[Tensor, ...]


def tokens_and_weights() -> Iterator[Case]:
    for seed, (B, T, d_model) in enumerate(
        ((2, 3, 5), (1, 3, 2), (1, 7, 5), (3, 2, 7), (2, 3, 3), (3, 3, 3), (1, 1, 3), (2, 3, 1))
    ):
        sizes = {"B": B, "T": T, "d_model": d_model}
        X = normal(B, T, d_model, seed=seed)
        W = normal(3 * d_model, d_model, seed=seed + 20)
        yield Case((X, W), sizes)
        if seed == 0:
            yield Case((strided(X), strided(W)), sizes, "with X and W_qkv not contiguous")


# --- exercise 3 ----------------------------------------------------------------------------------


def rows_of_w_are_outputs(X: Tensor, W: Tensor) -> Tensor:
    return X @ W.mT


def three_neighbours(y: Tensor) -> Three:
    Q, K, V = y.tensor_split(3, dim=-1)
    return Q, K, V


def queries_keys_values(Q: Tensor, K: Tensor, V: Tensor) -> Three:
    return Q, K, V


def same_tokens(X: Tensor) -> Tensor:
    return X


@exercise(
    3,
    "02",
    cases=tokens_and_weights,
    gives=("Q (B, T, d_model)", "K (B, T, d_model)", "V (B, T, d_model)"),
)
def project_qkv(
    X: Tensor,
    W_qkv: Tensor,
    *,
    product: Any = rows_of_w_are_outputs,
    cut: Any = three_neighbours,
    give: Any = queries_keys_values,
) -> Any:
    """X W_q^T, X W_k^T, X W_v^T, the rows of W_qkv stacked q, k, v."""
    parts = cut(product(X, W_qkv))
    return give(*parts) if len(parts) == 3 else parts


ORDER = "The rows of W_qkv stand in the order Q, K, V. Which third is which?"


def _orders() -> None:
    """The five wrong orders of three results."""
    for name, order in (
        ("k_q_v", (1, 0, 2)),
        ("q_v_k", (0, 2, 1)),
        ("v_k_q", (2, 1, 0)),
        ("k_v_q", (1, 2, 0)),
        ("v_q_k", (2, 0, 1)),
    ):

        def exchanged(Q: Tensor, K: Tensor, V: Tensor, order: Any = order) -> Three:
            return tuple((Q, K, V)[i] for i in order)

        spoken = ", ".join(name.upper().split("_"))
        does = f"The three results come in the order {spoken} instead of Q, K, V."
        project_qkv.slip("give", does, ORDER, key=f"order_{name}")(exchanged)


_orders()


@project_qkv.slip(
    "cut",
    "The columns are dealt out like cards: Q gets columns 0, 3, 6, … instead of the first d_model.",
    "The rows of W_qkv stand in three *blocks*. Which columns of the product are Q's?",
)
def dealt_like_cards(y: Tensor) -> Three:
    return y[..., 0::3], y[..., 1::3], y[..., 2::3]


@project_qkv.slip(
    "cut",
    "The product is cut by `view` or `reshape` to (3, B, T, d_model): in memory each token's three "
    "parts lie together, so this mixes tokens and parts.",
    "Which axis of (B, T, 3·d_model) has to be cut?",
)
def cut_in_memory_order(y: Tensor) -> Three:
    return tuple(y.reshape(3, *y.shape[:-1], -1))


@project_qkv.slip(
    "cut",
    "The cut goes through the tokens (dim 1), not through the last axis.",
    "Which axis of (B, T, 3·d_model) holds Q, K and V side by side?",
)
def cut_through_tokens(y: Tensor) -> Any:
    return y.chunk(3, dim=1)


@project_qkv.slip(
    "cut",
    "The cut goes through the batch (dim 0), not through the last axis.",
    "Which axis of (B, T, 3·d_model) holds Q, K and V side by side?",
)
def cut_through_batch(y: Tensor) -> Any:
    return y.chunk(3, dim=0)


@project_qkv.slip(
    "cut",
    "All three results are the same: the first third of the product.",
    "Which columns are K's, and which are V's?",
)
def three_times_the_first(y: Tensor) -> Three:
    Q, _, _ = three_neighbours(y)
    return Q, Q, Q


@project_qkv.slip(
    "cut",
    "K and V come from the same third of the product.",
    "Where does K's third end, and V's begin?",
)
def values_from_keys(y: Tensor) -> Three:
    Q, K, _ = three_neighbours(y)
    return Q, K, K


@project_qkv.slip(
    "cut",
    "V is taken from K's third and K from V's neighbour: the cuts overlap by one column.",
    "Q takes columns 0 to d_model−1. Where does K start?",
)
def overlapping(y: Tensor) -> Three:
    d = y.shape[-1] // 3
    return y[..., :d], y[..., d - 1 : 2 * d - 1], y[..., 2 * d - 1 : 3 * d - 1]


@project_qkv.slip(
    "give",
    "One tensor comes back, (B, T, 3·d_model): it is not yet cut into Q, K and V.",
    "Which call cuts the last axis into three?",
)
def not_cut(Q: Tensor, K: Tensor, V: Tensor) -> Tensor:
    return torch.cat([Q, K, V], -1)


@project_qkv.slip(
    "give",
    "One tensor with a new axis for the three comes back instead of three tensors.",
    "The stub promises a tuple of three. What takes a tensor apart along an axis?",
)
def stacked(Q: Tensor, K: Tensor, V: Tensor) -> Tensor:
    return torch.stack([Q, K, V])


@project_qkv.slip("give", "Only Q comes back.", "Which three does the stub promise?")
def queries_only(Q: Tensor, K: Tensor, V: Tensor) -> Tensor:
    return Q


@project_qkv.slip("give", "Only Q and K come back.", "Which three does the stub promise?")
def no_values(Q: Tensor, K: Tensor, V: Tensor) -> Any:
    return Q, K


@project_qkv.slip(
    "give",
    "The three come transposed, (B, d_model, T).",
    "Tokens in the middle, dimensions last: which product gives that?",
)
def each_transposed(Q: Tensor, K: Tensor, V: Tensor) -> Any:
    return Q.mT, K.mT, V.mT


@project_qkv.slip(
    "give",
    "The queries are scaled by √d_model already: here they are only projected.",
    "Where in softmax(Q Kᵀ / √d_k) V does the scale belong?",
)
def queries_scaled(Q: Tensor, K: Tensor, V: Tensor) -> Any:
    return Q / Q.shape[-1] ** 0.5, K, V


@project_qkv.slip(
    "product",
    "Only the first sequence of the batch is projected.",
    "What about the other sequences?",
)
def first_sequence_only(X: Tensor, W: Tensor) -> Tensor:
    return X[0] @ W.mT


@project_qkv.slip(
    "product",
    "W_qkv is not transposed but pressed into shape: `view` or `reshape` to (d_model, 3·d_model) "
    "keeps the numbers in their old order.",
    "Which call exchanges two axes instead of refilling a shape?",
)
def weight_reshaped(X: Tensor, W: Tensor) -> Tensor:
    return X @ W.reshape(W.shape[1], W.shape[0])


@project_qkv.slip(
    WHOLE,
    "W_qkv is cut into its three blocks rightly, and then each is used untransposed: X @ W instead "
    "of X @ Wᵀ. Square blocks fit either way, so nothing complains.",
    "`nn.Linear` keeps a row for each *output*. Which axis of the block has to meet X's last?",
)
def blocks_not_transposed(X: Tensor, W_qkv: Tensor) -> Three:
    W_q, W_k, W_v = W_qkv.tensor_split(3)
    return X @ W_q, X @ W_k, X @ W_v


@project_qkv.slip(
    WHOLE,
    "The rows of W_qkv are dealt out like cards: Q's weights are rows 0, 3, 6 and so on.",
    "The rows stand in three *blocks*: which rows are Q's?",
)
def rows_dealt_like_cards(X: Tensor, W_qkv: Tensor) -> Three:
    return X @ W_qkv[0::3].mT, X @ W_qkv[1::3].mT, X @ W_qkv[2::3].mT


@project_qkv.slip(
    WHOLE,
    "K is projected from Q, and V from K: the projections are chained.",
    "From what does each of the three projections start?",
)
def chained(X: Tensor, W_qkv: Tensor) -> Three:
    W_q, W_k, W_v = W_qkv.tensor_split(3)
    return X @ W_q.mT, X @ W_q.mT @ W_k.mT, X @ W_q.mT @ W_k.mT @ W_v.mT


@project_qkv.slip(
    WHOLE,
    "V is X itself: the values are not projected.",
    "What are the last d_model rows of W_qkv for?",
)
def values_not_projected(X: Tensor, W_qkv: Tensor) -> Three:
    W_q, W_k, _ = W_qkv.tensor_split(3)
    return X @ W_q.mT, X @ W_k.mT, X


@project_qkv.slip(
    WHOLE,
    "The three blocks of W_qkv come back, and X takes no part.",
    "What has to be multiplied with what?",
)
def blocks_of_weights(X: Tensor, W_qkv: Tensor) -> Three:
    return W_qkv.tensor_split(3)


# --- exercise 4 ----------------------------------------------------------------------------------


def widths() -> Iterator[Case]:
    for d_model, h, d_k in (
        (7, 3, 5),
        (13, 2, 11),
        (512, 8, 64),
        (10, 5, 3),
        (11, 1, 3),
        (3, 7, 2),
        (12, 3, 4),
    ):
        yield Case((d_model, h, d_k), {"d_model": d_model, "n_heads": h, "d_k": d_k})


def three_per_head(d_model: int, h: int, d_k: int) -> Any:
    return 3 * d_model * h * d_k


def back_to_d_model(d_model: int, h: int, d_k: int) -> Any:
    return h * d_k * d_model


def no_biases(d_model: int, h: int, d_k: int) -> Any:
    return 0


def as_it_is(count: Any) -> Any:
    return count


@exercise(4, "02", cases=widths, gradient=None, gives=("count",))
def count_parameters(
    d_model: int,
    n_heads: int,
    d_k: int,
    *,
    inward: Any = three_per_head,
    outward: Any = back_to_d_model,
    biases: Any = no_biases,
    finish: Any = as_it_is,
) -> Any:
    """4 · d_model · h · d_k."""
    sizes = (d_model, n_heads, d_k)
    return finish(inward(*sizes) + outward(*sizes) + biases(*sizes))


FREE = "d_k is free here: how wide is a token after W_q, if h heads take d_k dimensions each?"


@count_parameters.slip(
    "inward",
    "W_q, W_k and W_v are counted as d_model × d_model: that holds only where h · d_k = d_model.",
    FREE,
)
def square_inward(d_model: int, h: int, d_k: int) -> Any:
    return 3 * d_model**2


@count_parameters.slip(
    "inward",
    "W_q, W_k and W_v are counted for one head only: h is missing.",
    "Does every head have its own projections?",
)
def one_head_inward(d_model: int, h: int, d_k: int) -> Any:
    return 3 * d_model * d_k


@count_parameters.slip(
    "inward",
    "Every head gets W_q, W_k and W_v of the full width, d_model × d_model.",
    "How many dimensions does one head have?",
)
def full_width_heads(d_model: int, h: int, d_k: int) -> Any:
    return 3 * h * d_model**2


@count_parameters.slip(
    "inward",
    "d_model is missing in W_q, W_k and W_v: only their outputs are counted.",
    "A matrix has rows and columns. What are they for W_q?",
)
def inputs_forgotten(d_model: int, h: int, d_k: int) -> Any:
    return 3 * h * d_k


@count_parameters.slip(
    "inward",
    "Only W_o is counted.",
    "Which projections lead into the heads?",
)
def nothing_inward(d_model: int, h: int, d_k: int) -> Any:
    return 0


@count_parameters.slip("outward", "W_o is left out.", "How do the heads get back to d_model?")
def output_forgotten(d_model: int, h: int, d_k: int) -> Any:
    return 0


@count_parameters.slip(
    "outward",
    "W_o is counted as d_model × d_model: what it reads is h · d_k wide, which may differ.",
    "How wide is the concatenation of h heads of d_k dimensions?",
)
def square_outward(d_model: int, h: int, d_k: int) -> Any:
    return d_model**2


@count_parameters.slip(
    "outward",
    "W_o is counted for one head only, d_k × d_model.",
    "How wide is the concatenation of h heads?",
)
def one_head_outward(d_model: int, h: int, d_k: int) -> Any:
    return d_k * d_model


@count_parameters.slip(
    "outward",
    "W_o is counted as (h·d_k) × (h·d_k): it should lead back to d_model.",
    "How wide is a token after W_o?",
)
def outward_to_heads(d_model: int, h: int, d_k: int) -> Any:
    return (h * d_k) ** 2


@count_parameters.slip(
    "outward",
    "Every head gets a W_o of d_model × d_model.",
    "How wide is what one head hands to W_o?",
)
def square_outward_per_head(d_model: int, h: int, d_k: int) -> Any:
    return h * d_model**2


@count_parameters.slip(
    "inward",
    "Of W_q, W_k and W_v only one is counted.",
    "How many projections lead into the heads?",
)
def one_projection(d_model: int, h: int, d_k: int) -> Any:
    return d_model * h * d_k


@count_parameters.slip(
    "inward",
    "Of W_q, W_k and W_v only two are counted.",
    "How many projections lead into the heads?",
)
def two_projections(d_model: int, h: int, d_k: int) -> Any:
    return 2 * d_model * h * d_k


@count_parameters.slip(
    "biases", "The biases are counted too.", "Does the exercise want them in or out?"
)
def biases_in(d_model: int, h: int, d_k: int) -> Any:
    return 3 * h * d_k + d_model


@count_parameters.slip(
    "biases",
    "Four biases of d_model are counted too.",
    "Does the exercise want them in or out?",
)
def square_biases_in(d_model: int, h: int, d_k: int) -> Any:
    return 4 * d_model


@count_parameters.slip(
    "biases",
    "The biases of W_q, W_k and W_v are counted too.",
    "Does the exercise want them in or out?",
)
def inward_biases_in(d_model: int, h: int, d_k: int) -> Any:
    return 3 * h * d_k


@count_parameters.slip(
    "biases", "The bias of W_o is counted too.", "Does the exercise want it in or out?"
)
def outward_bias_in(d_model: int, h: int, d_k: int) -> Any:
    return d_model


@count_parameters.slip(
    "finish",
    "The count is a float: `/` (or a factor like 4.0) makes one, even of whole numbers.",
    "Which division of integers stays an integer?",
)
def count_as_float(count: Any) -> Any:
    return float(count)


@count_parameters.slip(
    "finish",
    "The count is a tensor instead of a plain `int`.",
    "What turns a tensor with one number into a Python number?",
)
def count_as_tensor(count: Any) -> Any:
    return torch.tensor(count)


@count_parameters.slip("finish", "The count is text.", "What type should a count have?")
def count_as_text(count: Any) -> Any:
    return str(count)


@count_parameters.slip(
    "finish", "The count is twice too large.", "Is one of the matrices counted twice?"
)
def counted_twice(count: Any) -> Any:
    return 2 * count


@count_parameters.slip(
    WHOLE,
    "The whole is multiplied by h once more.",
    "Where does h already stand in the sizes of the matrices?",
)
def times_heads(d_model: int, n_heads: int, d_k: int) -> Any:
    return 4 * d_model * n_heads**2 * d_k


@count_parameters.slip(
    WHOLE,
    "d_k is computed anew as d_model / h, and the one given is ignored.",
    "The exercise gives d_k for a reason: it is free. Where does it enter?",
)
def tied_width(d_model: int, n_heads: int, d_k: int) -> Any:
    return 4 * d_model * n_heads * (d_model // n_heads)


@count_parameters.slip(
    WHOLE,
    "Sizes are added where they should be multiplied.",
    "How many numbers does a matrix with a rows and b columns have?",
)
def sizes_added(d_model: int, n_heads: int, d_k: int) -> Any:
    return 4 * (d_model + n_heads * d_k)
