"""Exercises 1 and 2, notebook 01: scores, and the whole of scaled dot-product attention."""

import math
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from mha_lesson.check.exercise import WHOLE, Case, exercise
from mha_lesson.check.inputs import normal, strided

# --- the right steps -----------------------------------------------------------------------------


def every_query_with_every_key(Q: Tensor, K: Tensor) -> Tensor:
    return Q @ K.transpose(-2, -1)


def by_root_d_k(scores: Tensor, Q: Tensor, K: Tensor) -> Tensor:
    return scores / math.sqrt(Q.shape[-1])


def as_they_are(scores: Tensor) -> Tensor:
    return scores


def softmax_over_keys(scores: Tensor) -> Tensor:
    return scores.softmax(-1)


def weights_times_values(weights: Tensor, Q: Tensor, K: Tensor, V: Tensor) -> Tensor:
    return weights @ V


def output_and_weights(output: Tensor, weights: Tensor, scores: Tensor) -> tuple[Tensor, Tensor]:
    return output, weights


# --- the inputs ----------------------------------------------------------------------------------


def queries_and_keys() -> Iterator[Case]:
    for Q, K, _, sizes, note, *limits in _triples():
        yield Case((Q, K), {k: n for k, n in sizes.items() if k != "d_v"}, note, *limits)


def queries_keys_values() -> Iterator[Case]:
    for Q, K, V, sizes, note, *limits in _triples():
        yield Case((Q, K, V), sizes, note, *limits)


def _triples() -> Iterator[tuple[Any, ...]]:
    for seed, (axes, (t_q, t_k, d_k, d_v)) in enumerate(
        (
            ({"B": 2}, (3, 5, 7, 11)),
            ({}, (3, 5, 2, 7)),
            ({"B": 2, "h": 3}, (5, 7, 11, 13)),
            ({"B": 1}, (7, 3, 5, 2)),
            ({}, (1, 1, 3, 2)),
            ({}, (3, 3, 3, 3)),
            ({"B": 3}, (3, 3, 3, 3)),
        )
    ):
        lead = tuple(axes.values())
        sizes = axes | {"T_q": t_q, "T_k": t_k, "d_k": d_k, "d_v": d_v}
        Q = normal(*lead, t_q, d_k, seed=seed)
        K = normal(*lead, t_k, d_k, seed=seed + 20)
        V = normal(*lead, t_k, d_v, seed=seed + 40)
        yield Q, K, V, sizes, ""
        if seed == 0:
            yield strided(Q), strided(K), strided(V), sizes, "with inputs not contiguous"
            # In double precision a float32 √d_k may move such scores by 1e-3.
            yield 70 * Q, 70 * K, V, sizes, "where scores go up to ±1e4", 2e-3, True


# --- exercise 1 ----------------------------------------------------------------------------------


@exercise(1, "01", cases=queries_and_keys, gives=("scores (..., T_q, T_k)",))
def attention_scores(
    Q: Tensor,
    K: Tensor,
    *,
    product: Any = every_query_with_every_key,
    scale: Any = by_root_d_k,
    finish: Any = as_they_are,
) -> Any:
    """Q Kᵀ / √d_k."""
    return finish(scale(product(Q, K), Q, K))


# Slips of the product. Scores are asked for where T_q, T_k and d_k differ and where they agree:
# only then does a forgotten transpose give a number at all.

LAST_TWO = "Which two axes have to change places, counted from the end?"


@attention_scores.slip(
    "product",
    "Q is multiplied by K as it stands: a query's numbers then meet columns of K, that is one "
    "dimension of every key, instead of one whole key.",
    "A score is the dot product of two rows, one of Q and one of K. What makes a row of K a "
    "column?",
)
def key_not_transposed(Q: Tensor, K: Tensor) -> Tensor:
    return Q @ K


@attention_scores.slip(
    "product",
    "`K.T` turns *all* axes round, not the last two: with a batch in front, B goes to the end.",
    LAST_TWO,
)
def all_axes_reversed(Q: Tensor, K: Tensor) -> Tensor:
    return Q @ K.permute(*reversed(range(K.ndim)))


@attention_scores.slip(
    "product",
    "K's axes 0 and 1 change places. That is right for one matrix; with a batch in front it "
    "exchanges B and T_k.",
    LAST_TWO,
)
def first_axes_exchanged(Q: Tensor, K: Tensor) -> Tensor:
    return Q @ K.transpose(0, 1)


@attention_scores.slip(
    "product",
    "K's axes 1 and 2 change places, counted from the front: that fits only where there is "
    "exactly one axis before T_k.",
    LAST_TWO,
)
def axes_one_and_two(Q: Tensor, K: Tensor) -> Tensor:
    return Q @ K.transpose(1, 2)


@attention_scores.slip(
    "product",
    "K is pressed into the shape (d_k, T_k) by `view` or `reshape`. That keeps the numbers in "
    "their old order, so the columns are not keys.",
    "Which call exchanges two axes instead of refilling a shape?",
)
def key_reshaped(Q: Tensor, K: Tensor) -> Tensor:
    return Q @ K.reshape(*K.shape[:-2], K.shape[-1], K.shape[-2])


@attention_scores.slip(
    "product",
    "The roles are exchanged: your rows belong to keys and your columns to queries, K Qᵀ (or a "
    "transposed result) instead of Q Kᵀ.",
    "Row i should hold the scores of query i. Which factor gives a product its rows?",
)
def roles_exchanged(Q: Tensor, K: Tensor) -> Tensor:
    return K @ Q.transpose(-2, -1)


@attention_scores.slip(
    "product",
    "Q is transposed instead of K: that multiplies dimensions with dimensions, and the tokens are "
    "summed away.",
    "Over which axis should a score sum: over tokens or over d_k?",
)
def query_transposed(Q: Tensor, K: Tensor) -> Tensor:
    return Q.transpose(-2, -1) @ K


@attention_scores.slip(
    "product",
    "Q is compared with itself: K takes no part.",
    "Whose rows should the columns of the scores stand for?",
)
def query_with_query(Q: Tensor, K: Tensor) -> Tensor:
    return Q @ Q.transpose(-2, -1)


@attention_scores.slip(
    "product",
    "K is compared with itself: Q takes no part.",
    "Whose rows should the rows of the scores stand for?",
)
def key_with_key(Q: Tensor, K: Tensor) -> Tensor:
    return K @ K.transpose(-2, -1)


@attention_scores.slip(
    "product",
    "Q and K are multiplied entry by entry (`*`): query i only meets key i, and nothing is summed.",
    "How many numbers should come out for T_q queries and T_k keys?",
)
def entry_by_entry(Q: Tensor, K: Tensor) -> Tensor:
    return Q * K


@attention_scores.slip(
    "product",
    "Each query only meets the key at its own position: `*` and then a sum over d_k gives one "
    "score per token instead of T_q × T_k.",
    "Which product lets every query meet every key?",
)
def own_key_only(Q: Tensor, K: Tensor) -> Tensor:
    return (Q * K).sum(-1)


@attention_scores.slip(
    "product",
    "Rows are brought to length 1 first, so the scores are cosines: how long a query or key is no "
    "longer counts.",
    "Does the formula Q Kᵀ / √d_k divide by the lengths of the vectors?",
)
def cosines(Q: Tensor, K: Tensor) -> Tensor:
    return F.normalize(Q, dim=-1) @ F.normalize(K, dim=-1).transpose(-2, -1)


@attention_scores.slip(
    "product",
    "Your scores are distances between queries and keys, not dot products.",
    "What does Q Kᵀ compute for one row of Q and one row of K?",
)
def distances(Q: Tensor, K: Tensor) -> Tensor:
    return torch.cdist(Q, K)


@attention_scores.slip(
    "product", "The products have the wrong sign.", "Should a similar key score high or low?"
)
def negated(Q: Tensor, K: Tensor) -> Tensor:
    return -Q @ K.transpose(-2, -1)


# Slips of the scale.

SPREAD = "For random vectors the dot product spreads like √d_k. What brings it back to 1?"
LONG = "Which axis is summed over in the dot product? Its length is what makes scores large."


@attention_scores.slip("scale", "The scores are not scaled: nothing divides Q Kᵀ.", SPREAD)
def no_scale(scores: Tensor, Q: Tensor, K: Tensor) -> Tensor:
    return scores


@attention_scores.slip(
    "scale",
    "The scores are divided by d_k itself, not by its root (scaling both Q and K by √d_k, or "
    "scaling twice, comes to the same).",
    SPREAD,
)
def by_d_k(scores: Tensor, Q: Tensor, K: Tensor) -> Tensor:
    return scores / Q.shape[-1]


@attention_scores.slip(
    "scale",
    "The scores are *multiplied* by √d_k: they grow with d_k instead of staying put.",
    "Should the scale make large scores larger or smaller?",
)
def times_root_d_k(scores: Tensor, Q: Tensor, K: Tensor) -> Tensor:
    return scores * math.sqrt(Q.shape[-1])


@attention_scores.slip("scale", "The scores are multiplied by d_k.", SPREAD)
def times_d_k(scores: Tensor, Q: Tensor, K: Tensor) -> Tensor:
    return scores * Q.shape[-1]


@attention_scores.slip(
    "scale",
    "The scores are divided by √T_k, the root of the number of keys (`K.shape[-2]`), not of their "
    "width.",
    LONG,
)
def by_root_t_k(scores: Tensor, Q: Tensor, K: Tensor) -> Tensor:
    return scores / math.sqrt(K.shape[-2])


@attention_scores.slip(
    "scale",
    "The scores are divided by √T_q, the root of the number of queries (`Q.shape[-2]`).",
    LONG,
)
def by_root_t_q(scores: Tensor, Q: Tensor, K: Tensor) -> Tensor:
    return scores / math.sqrt(Q.shape[-2])


@attention_scores.slip(
    "scale",
    "The scores are divided by the root of axis 0's length (`size(0)` or `len`): that is T or B, "
    "never d_k.",
    LONG,
)
def by_root_axis_0(scores: Tensor, Q: Tensor, K: Tensor) -> Tensor:
    return scores / math.sqrt(Q.shape[0])


@attention_scores.slip(
    "scale",
    "The scores are divided by the root of axis 1's length: that is d_k only for one single "
    "matrix, and T or h as soon as axes stand in front.",
    "How do you name the last axis, however many stand before it?",
)
def by_root_axis_1(scores: Tensor, Q: Tensor, K: Tensor) -> Tensor:
    return scores / math.sqrt(Q.shape[1])


@attention_scores.slip("scale", "The scores are divided by T_k, the number of keys.", LONG)
def by_t_k(scores: Tensor, Q: Tensor, K: Tensor) -> Tensor:
    return scores / K.shape[-2]


@attention_scores.slip(
    "scale",
    "`d_k ** 1/2` is (d_k ** 1) / 2, since `**` binds before `/`: the scores are divided by d_k/2.",
    "How do brackets, or `0.5`, say what is meant?",
)
def precedence_half(scores: Tensor, Q: Tensor, K: Tensor) -> Tensor:
    return scores / (Q.shape[-1] ** 1 / 2)


@attention_scores.slip(
    "scale",
    "`/ d_k ** 1/2` divides by d_k and then by 2, since `**` binds before `/`.",
    "How do brackets, or `0.5`, say what is meant?",
)
def precedence_two(scores: Tensor, Q: Tensor, K: Tensor) -> Tensor:
    return scores / Q.shape[-1] / 2


@attention_scores.slip(
    "scale",
    "The scores are divided by d_k², so they shrink towards 0 as d_k grows.",
    SPREAD,
)
def by_d_k_squared(scores: Tensor, Q: Tensor, K: Tensor) -> Tensor:
    return scores / Q.shape[-1] ** 2


@attention_scores.slip(
    "scale",
    "The root is taken twice: the scores are divided by the fourth root of d_k.",
    "Q and K each share one product. How much of the scale does each of them carry?",
)
def by_fourth_root(scores: Tensor, Q: Tensor, K: Tensor) -> Tensor:
    return scores / Q.shape[-1] ** 0.25


@attention_scores.slip(
    "scale",
    "The root is rounded down to a whole number: `int(...)` or `//` cuts off what follows the "
    "point.",
    "Does √d_k have to be a whole number?",
)
def by_rounded_root(scores: Tensor, Q: Tensor, K: Tensor) -> Tensor:
    return scores / int(math.sqrt(Q.shape[-1]))


@attention_scores.slip(
    "scale",
    "The scores are divided with `//`, which rounds every one of them down.",
    "Which division keeps what follows the point?",
)
def floor_division(scores: Tensor, Q: Tensor, K: Tensor) -> Tensor:
    return scores // math.sqrt(Q.shape[-1])


@attention_scores.slip(
    "scale",
    "√d_k is subtracted instead of divided by.",
    "A difference moves all scores alike. What changes how far they spread?",
)
def minus_root(scores: Tensor, Q: Tensor, K: Tensor) -> Tensor:
    return scores - math.sqrt(Q.shape[-1])


@attention_scores.slip(
    "scale",
    "The scores are divided by their own standard deviation, so they depend on the other tokens.",
    "The scale in the formula depends on d_k only. Which number is that?",
)
def by_own_spread(scores: Tensor, Q: Tensor, K: Tensor) -> Tensor:
    return scores / scores.std()


@attention_scores.slip(
    "scale",
    "The scores are divided by the root of a fixed number, 64: that is the paper's d_k, not the "
    "one of these inputs.",
    "Where can the function read d_k from?",
)
def by_eight(scores: Tensor, Q: Tensor, K: Tensor) -> Tensor:
    return scores / 8


# Slips at the end.


@attention_scores.slip(
    "finish",
    "A softmax is applied already: these are weights, and the scores were asked for.",
    "Where does Q Kᵀ / √d_k end, and where does the softmax begin?",
)
def softmax_too_early(scores: Tensor) -> Tensor:
    return scores.softmax(-1)


@attention_scores.slip(
    "finish",
    "A softmax is applied already, and over the queries at that: the scores were asked for.",
    "Where does Q Kᵀ / √d_k end, and where does the softmax begin?",
)
def softmax_too_early_over_queries(scores: Tensor) -> Tensor:
    return scores.softmax(-2)


@attention_scores.slip(
    "finish",
    "The future is blocked as well (−∞ above the diagonal): masks come later, here every query "
    "sees every key.",
    "Which line makes that triangle, and was it asked for?",
)
def causal_already(scores: Tensor) -> Tensor:
    return scores.masked_fill(torch.ones_like(scores).triu(1).bool(), -math.inf)


@attention_scores.slip("finish", "Negative scores lose their sign.", "May a score be below zero?")
def absolute(scores: Tensor) -> Tensor:
    return scores.abs()


# --- exercise 2 ----------------------------------------------------------------------------------


@exercise(
    2,
    "01",
    cases=queries_keys_values,
    gives=("output (..., T_q, d_v)", "weights (..., T_q, T_k)"),
)
def attention(
    Q: Tensor,
    K: Tensor,
    V: Tensor,
    *,
    product: Any = every_query_with_every_key,
    scale: Any = by_root_d_k,
    normalise: Any = softmax_over_keys,
    mix: Any = weights_times_values,
    give: Any = output_and_weights,
) -> Any:
    """softmax(Q Kᵀ / √d_k) V, and the weights."""
    scores = scale(product(Q, K), Q, K)
    weights = normalise(scores)
    return give(mix(weights, Q, K, V), weights, scores)


attention.adopt(attention_scores, "product", "scale")

ROWS = "Each query shares out a weight of 1 among the keys. Along which axis do the keys lie?"


@attention.slip(
    "normalise",
    "The softmax runs over the queries (axis −2): every *column* sums to 1, so the queries share "
    "out each key.",
    ROWS,
)
def softmax_over_queries(scores: Tensor) -> Tensor:
    return scores.softmax(-2)


@attention.slip(
    "normalise",
    "The softmax runs over axis 0. That is the batch, or the queries where there is no batch.",
    ROWS,
)
def softmax_over_axis_0(scores: Tensor) -> Tensor:
    return scores.softmax(0)


@attention.slip(
    "normalise",
    "The softmax runs over axis 1, counted from the front. For a single matrix these are the "
    "keys, with a batch in front the queries, with heads the heads.",
    ROWS,
)
def softmax_over_axis_1(scores: Tensor) -> Tensor:
    return scores.softmax(1)


@attention.slip(
    "normalise",
    "The softmax runs over axis 2, counted from the front: that is the last one only with exactly "
    "one axis in front.",
    "How do you name the last axis, however many stand before it?",
)
def softmax_over_axis_2(scores: Tensor) -> Tensor:
    return scores.softmax(2)


@attention.slip(
    "normalise",
    "The softmax gets no `dim`, and then torch guesses: axis 0 for one or three axes, axis 1 "
    "otherwise.",
    ROWS,
)
def softmax_without_axis(scores: Tensor) -> Tensor:
    return scores.softmax(0 if scores.ndim in (0, 1, 3) else 1)


@attention.slip(
    "normalise",
    "The softmax runs over the whole matrix at once: all T_q × T_k weights together sum to 1.",
    ROWS,
)
def softmax_over_matrix(scores: Tensor) -> Tensor:
    return scores.flatten(-2).softmax(-1).view_as(scores)


@attention.slip(
    "normalise",
    "The softmax runs over all numbers of the batch at once.",
    ROWS,
)
def softmax_over_everything(scores: Tensor) -> Tensor:
    return scores.flatten().softmax(-1).view_as(scores)


@attention.slip(
    "normalise",
    "There is no softmax: the raw scores are used as weights.",
    "What makes the weights of a query positive, with a sum of 1?",
)
def no_softmax(scores: Tensor) -> Tensor:
    return scores


@attention.slip(
    "normalise",
    "The weights are logarithms: `log_softmax` instead of `softmax`.",
    "Can a weight be negative?",
)
def log_softmax(scores: Tensor) -> Tensor:
    return scores.log_softmax(-1)


@attention.slip(
    "normalise",
    "A sigmoid weighs every key on its own, so a row need not sum to 1.",
    "Which function lets the keys of a query compete?",
)
def sigmoid(scores: Tensor) -> Tensor:
    return scores.sigmoid()


@attention.slip(
    "normalise",
    "The scores are divided by their sum without being exponentiated: weights can be negative, or "
    "explode where the sum is near 0.",
    "What does the softmax do before it divides?",
)
def shares_of_scores(scores: Tensor) -> Tensor:
    return scores / scores.sum(-1, keepdim=True)


@attention.slip(
    "normalise",
    "The scores are exponentiated, and never divided by their sum.",
    "What should the weights of one query sum to?",
)
def exponentials(scores: Tensor) -> Tensor:
    return scores.exp()


@attention.slip(
    "normalise",
    "`exp` of the scores as they are overflows when scores are large: exp(1000) is ∞, and ∞/∞ is "
    "NaN.",
    "Adding one number to a whole row does not change its softmax. Which number would help?",
)
def naive_exponentials(scores: Tensor) -> Tensor:
    return scores.exp() / scores.exp().sum(-1, keepdim=True)


@attention.slip(
    "normalise",
    "The exponentials are divided by the sum over the queries (axis −2), and overflow for large "
    "scores.",
    ROWS,
)
def naive_exponentials_over_queries(scores: Tensor) -> Tensor:
    return scores.exp() / scores.exp().sum(-2, keepdim=True)


@attention.slip(
    "normalise",
    "The exponentials are divided by the sum over everything, and overflow for large scores.",
    ROWS,
)
def naive_exponentials_over_everything(scores: Tensor) -> Tensor:
    return scores.exp() / scores.exp().sum()


@attention.slip(
    "normalise",
    "The largest number of the *whole* tensor is subtracted before `exp`: rows that lie far below "
    "it lose all their weight, and become 0/0.",
    "Which maximum may be taken away from a row without changing its softmax?",
)
def global_maximum(scores: Tensor) -> Tensor:
    powers = (scores - scores.max()).exp()
    return powers / powers.sum(-1, keepdim=True)


@attention.slip(
    "normalise",
    "The softmax is applied twice: the second one makes the weights nearly equal.",
    "What do weights between 0 and 1 look like after another softmax?",
)
def softmax_twice(scores: Tensor) -> Tensor:
    return scores.softmax(-1).softmax(-1)


@attention.slip(
    "normalise",
    "Only the best key counts: the maximum takes all the weight.",
    "Soft lookup: how much weight do the other keys keep?",
)
def only_the_best(scores: Tensor) -> Tensor:
    return F.one_hot(scores.argmax(-1), scores.shape[-1]).to(scores.dtype)


@attention.slip(
    "normalise",
    "All keys get the same weight, whatever their scores.",
    "Where do the scores enter the weights?",
)
def uniform(scores: Tensor) -> Tensor:
    return torch.full_like(scores, 1 / scores.shape[-1])


@attention.slip(
    "normalise",
    "The scores have their sign turned round before the softmax: the least similar key gets most.",
    "Should a similar key score high or low?",
)
def softmin(scores: Tensor) -> Tensor:
    return (-scores).softmax(-1)


@attention.slip(
    "normalise",
    "The future is blocked as well: masks come later, here every query sees every key.",
    "Which line makes that triangle, and was it asked for?",
)
def causal_softmax(scores: Tensor) -> Tensor:
    return scores.masked_fill(torch.ones_like(scores).triu(1).bool(), -math.inf).softmax(-1)


@attention.slip(
    "mix",
    "V takes no part: your output is the weights themselves.",
    "What does a query collect, by these weights?",
)
def values_forgotten(weights: Tensor, Q: Tensor, K: Tensor, V: Tensor) -> Tensor:
    return weights


@attention.slip(
    "mix",
    "The weights are transposed before they meet V: value j is shared out instead of collected.",
    "Output row i is a mean of the values by the weights of query i. Which axis is summed over?",
)
def weights_transposed(weights: Tensor, Q: Tensor, K: Tensor, V: Tensor) -> Tensor:
    return weights.transpose(-2, -1) @ V


@attention.slip(
    "mix",
    "The weights collect keys: K stands where V should.",
    "What are keys for, and what are values for?",
)
def keys_collected(weights: Tensor, Q: Tensor, K: Tensor, V: Tensor) -> Tensor:
    return weights @ K


@attention.slip(
    "mix",
    "The weights collect queries: Q stands where V should.",
    "What is it that a query takes home?",
)
def queries_collected(weights: Tensor, Q: Tensor, K: Tensor, V: Tensor) -> Tensor:
    return weights @ Q


@attention.slip(
    "mix",
    "V is multiplied from the left, V · weights: values meet queries instead of weights of keys.",
    "Which axis do weights and V share, and on which side must it stand?",
)
def values_first(weights: Tensor, Q: Tensor, K: Tensor, V: Tensor) -> Tensor:
    return V @ weights


@attention.slip(
    "mix",
    "V is transposed before the product: dimensions are weighed instead of tokens.",
    "Which axis of V belongs to the keys?",
)
def values_transposed(weights: Tensor, Q: Tensor, K: Tensor, V: Tensor) -> Tensor:
    return weights @ V.transpose(-2, -1)


@attention.slip(
    "mix",
    "Weights and values are multiplied entry by entry, and not summed over the keys.",
    "An output row is one weighted mean. Which product sums as it multiplies?",
)
def entrywise_values(weights: Tensor, Q: Tensor, K: Tensor, V: Tensor) -> Tensor:
    return weights * V


@attention.slip(
    "mix",
    "The output is V itself: the weights are not used.",
    "What do the weights do to the values?",
)
def values_alone(weights: Tensor, Q: Tensor, K: Tensor, V: Tensor) -> Tensor:
    return V


@attention.slip(
    "mix",
    "The output is divided by √d_k once more (or the scale came after the softmax).",
    "Where does the scale stand in softmax(Q Kᵀ / √d_k) V?",
)
def output_scaled(weights: Tensor, Q: Tensor, K: Tensor, V: Tensor) -> Tensor:
    return weights @ V / math.sqrt(Q.shape[-1])


@attention.slip(
    "mix",
    "The query is added to the output: a residual connection belongs around attention, not in it.",
    "What remains if you leave the sum out?",
)
def residual(weights: Tensor, Q: Tensor, K: Tensor, V: Tensor) -> Tensor:
    return Q + weights @ V


@attention.slip(
    "give",
    "The two results come in the wrong order: (weights, output).",
    "What does the stub promise first?",
)
def results_exchanged(output: Tensor, weights: Tensor, scores: Tensor) -> Any:
    return weights, output


@attention.slip(
    "give",
    "Only the output comes back.",
    "The stub promises two things: what is the other one?",
)
def output_only(output: Tensor, weights: Tensor, scores: Tensor) -> Any:
    return output


@attention.slip(
    "give",
    "Only the weights come back.",
    "The stub promises two things: what should the weights be used for?",
)
def weights_only(output: Tensor, weights: Tensor, scores: Tensor) -> Any:
    return weights


@attention.slip(
    "give",
    "Beside the output come the scaled scores, from before the softmax, instead of the weights.",
    "Which of your variables sums to 1 over the keys?",
)
def scores_returned(output: Tensor, weights: Tensor, scores: Tensor) -> Any:
    return output, scores


@attention.slip(
    "give",
    "Three things come back: output, weights and scores.",
    "Which two does the stub promise?",
)
def three_results(output: Tensor, weights: Tensor, scores: Tensor) -> Any:
    return output, weights, scores


@attention.slip(
    "give",
    "The output comes back twice.",
    "The stub promises the weights beside the output. Which variable are they?",
)
def output_twice(output: Tensor, weights: Tensor, scores: Tensor) -> Any:
    return output, output


@attention.slip(
    "give",
    "The weights come back transposed: rows are keys and columns are queries.",
    "Row i should hold the weights of query i.",
)
def weights_returned_transposed(output: Tensor, weights: Tensor, scores: Tensor) -> Any:
    return output, weights.transpose(-2, -1)


@attention.slip(
    "give",
    "The weights come back averaged over their first axis.",
    "Every query of every head has weights of its own. Which line takes the mean?",
)
def weights_averaged(output: Tensor, weights: Tensor, scores: Tensor) -> Any:
    return output, weights.mean(0)


@attention.slip(
    WHOLE,
    "The scale comes after the softmax: the softmax sees unscaled scores, and its rows then sum "
    "to 1/√d_k.",
    "Where does √d_k stand in softmax(Q Kᵀ / √d_k) V?",
)
def scaled_after_softmax(Q: Tensor, K: Tensor, V: Tensor) -> Any:
    weights = (Q @ K.transpose(-2, -1)).softmax(-1) / math.sqrt(Q.shape[-1])
    return weights @ V, weights


@attention.slip(
    WHOLE,
    "The scores are divided by √d_v, the root of the width of V.",
    LONG,
)
def by_root_d_v(Q: Tensor, K: Tensor, V: Tensor) -> Any:
    weights = (Q @ K.transpose(-2, -1) / math.sqrt(V.shape[-1])).softmax(-1)
    return weights @ V, weights


@attention.slip(
    WHOLE,
    "The output mixes V by the raw scores; only what you return beside it went through the "
    "softmax.",
    "By which of the two should the values be weighed?",
)
def scores_mix_values(Q: Tensor, K: Tensor, V: Tensor) -> Any:
    scores = Q @ K.transpose(-2, -1) / math.sqrt(Q.shape[-1])
    return scores @ V, scores.softmax(-1)


@attention.slip(
    WHOLE,
    "The softmax comes last, over the output: values are mixed by raw scores, and what comes out "
    "is squashed.",
    "Does the softmax stand around Q Kᵀ / √d_k, or around the whole product with V?",
)
def softmax_of_output(Q: Tensor, K: Tensor, V: Tensor) -> Any:
    scores = Q @ K.transpose(-2, -1) / math.sqrt(Q.shape[-1])
    return (scores @ V).softmax(-1), scores


@attention.slip(
    WHOLE,
    "The output is computed with one scale and the weights beside it with another: the weights "
    "returned are those of unscaled scores.",
    "Can output and weights come from one and the same softmax?",
)
def unscaled_weights_returned(Q: Tensor, K: Tensor, V: Tensor) -> Any:
    return F.scaled_dot_product_attention(Q, K, V), (Q @ K.transpose(-2, -1)).softmax(-1)
