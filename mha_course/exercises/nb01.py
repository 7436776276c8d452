"""Exercises 1 and 2, notebook 01: scores, and the whole of scaled dot-product attention."""

import math
from collections.abc import Iterator
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from mha_course.engine.families import fixed_numbers
from mha_course.engine.inputs import normal, strided
from mha_course.exercises import Case, exercise


def shares(x: Tensor, added: float = 0.0) -> Tensor:
    return x / (x.sum(-1, keepdim=True) + added)


def queries_and_keys() -> Iterator[Case]:
    for case in queries_keys_values():
        sizes = {letter: n for letter, n in case.sizes.items() if letter != "d_v"}
        yield replace(case, inputs=case.inputs[:2], sizes=sizes)
    inputs = normal(2, 1, 3, 2, 5, seed=61), normal(2, 1, 3, 4, 5, seed=62)
    yield Case(inputs, {}, "with three axes in front", asks="Does any line count the axes?")


def queries_keys_values() -> Iterator[Case]:
    rows = (
        ({"B": 2}, (3, 5, 7, 11)),
        ({}, (3, 5, 2, 7)),
        ({"B": 2, "h": 3}, (5, 7, 11, 13)),
        ({"B": 1}, (7, 3, 5, 2)),
        ({}, (1, 1, 3, 2)),
        ({}, (3, 3, 3, 3)),
        ({"B": 3}, (3, 3, 3, 3)),
    )
    for seed, (axes, (t_q, t_k, d_k, d_v)) in enumerate(rows):
        lead = tuple(axes.values())
        sizes = axes | {"T_q": t_q, "T_k": t_k, "d_k": d_k, "d_v": d_v}
        Q = normal(*lead, t_q, d_k, seed=seed)
        K = normal(*lead, t_k, d_k, seed=seed + 20)
        V = normal(*lead, t_k, d_v, seed=seed + 40)
        yield Case((Q, K, V), sizes)
        if seed == 0:
            apart = (strided(Q), strided(K), strided(V))
            yield Case(apart, sizes, "with inputs not contiguous")
            # In double precision a float32 √d_k may move such scores by 1e-3.
            yield Case((70 * Q, 70 * K, V), sizes, "where scores go up to ±1e4", 2e-3, True)


@exercise(
    1,
    "01",
    reread="Why divide at all?",
    part_of="attention",
    stages="product scale",
    make_cases=queries_and_keys,
    gives=("scores (..., T_q, T_k)",),
)
def attention_scores(Q, K, *, product, scale, finish):
    """Q Kᵀ / √d_k."""
    return finish(scale(product(Q, K), Q, K))


@attention_scores.step
def product(Q, K):
    """Which two axes have to change places, counted from the end?"""
    key_not_transposed = Q @ K
    """Q is multiplied by K as it is: each query is multiplied by columns of K, which hold one
    dimension of every key, not one whole key. | A score is the dot product of two rows, one of Q
    and one of K. What turns a row of K into a column?"""
    all_axes_reversed = Q @ K.permute(*reversed(range(K.ndim)))
    "`K.T` reverses *all* axes, not the last two: with a batch in front, B goes to the end."
    first_axes_exchanged = Q @ K.transpose(0, 1)
    """K's axes 0 and 1 change places. That is right for one matrix; with a batch in front it
    exchanges B and T_k."""
    axes_one_and_two = Q @ K.transpose(1, 2)
    """K's axes 1 and 2 change places, counted from the front: that fits only where there is exactly
    one axis before T_k."""
    key_reshaped = Q @ K.reshape(*K.shape[:-2], K.shape[-1], K.shape[-2])
    """K is pressed into the shape (d_k, T_k) by `view` or `reshape`. That keeps the numbers in
    their old order, so the columns are not keys. | Which call exchanges two axes instead of
    refilling a shape?"""
    roles_exchanged = K @ Q.transpose(-2, -1)
    """The roles are exchanged: your rows belong to keys and your columns to queries, K Qᵀ (or a
    transposed result) instead of Q Kᵀ. | Row i should hold the scores of query i. Which factor
    gives a product its rows?"""
    query_transposed = Q.transpose(-2, -1) @ K
    """Q is transposed instead of K: that multiplies dimensions with dimensions, and the tokens are
    summed away. | Over which axis should a score sum: over tokens or over d_k?"""
    query_with_query = Q @ Q.transpose(-2, -1)
    """Q is compared with itself: K is not used. | Whose rows should the columns of the scores stand
    for?"""
    entry_by_entry = Q * K
    """Q and K are multiplied entry by entry (`*`): query i is compared with key i only, and nothing
    is summed. | How many numbers should come out for T_q queries and T_k keys?"""
    cosines = F.normalize(Q, dim=-1) @ F.normalize(K, dim=-1).transpose(-2, -1)
    """Rows are scaled to length 1 first, so the scores are cosines: the length of a query or key no
    longer counts. | Does the formula Q Kᵀ / √d_k divide by the lengths of the vectors?"""
    return Q @ K.transpose(-2, -1)


@attention_scores.step
def scale(scores, Q, K):
    """For random vectors the dot product spreads like √d_k. What brings it back to 1?"""
    no_scale = scores
    "The scores are not scaled: nothing divides Q Kᵀ."
    by_d_k = scores / Q.shape[-1]
    """The scores are divided by d_k itself, not by its root (scaling both Q and K by √d_k, or
    scaling twice, gives the same)."""
    times_root_d_k = scores * math.sqrt(Q.shape[-1])
    """The scores are *multiplied* by √d_k: they grow with d_k instead of staying put. | Should the
    scale make large scores larger or smaller?"""
    by_root_t_k = scores / math.sqrt(K.shape[-2])
    """The scores are divided by √T_k, the root of the number of keys (`K.shape[-2]`), not of their
    width. | Which axis is summed over in the dot product? Its length is what makes scores large."""
    by_root_t_q = scores / math.sqrt(Q.shape[-2])
    """The scores are divided by √T_q, the root of the number of queries (`Q.shape[-2]`). | Which
    axis is summed over in the dot product? Its length is what makes scores large."""
    by_root_axis_0 = scores / math.sqrt(Q.shape[0])
    """The scores are divided by the root of axis 0's length (`size(0)` or `len`): that is T or B,
    never d_k. | Which axis is summed over in the dot product? Its length is what makes scores
    large."""
    by_root_axis_1_of_k = scores / math.sqrt(K.shape[1])
    """The scores are divided by the root of the length of K's axis 1: that is d_k only for one
    single matrix, and T_k or h when there are axes in front. | How do you name the last axis,
    however many come before it?"""
    by_root_axis_1 = scores / math.sqrt(Q.shape[1])
    """The scores are divided by the root of axis 1's length: that is d_k only for one single
    matrix, and T or h when there are axes in front. | How do you name the last axis, however many
    come before it?"""
    precedence_half = scores / (Q.shape[-1] ** 1 / 2)
    """The scores are divided by d_k/2. (`d_k ** 1/2` means that: `**` binds before `/`.) | How do
    brackets, or `0.5`, say what is meant?"""
    precedence_two = scores / Q.shape[-1] / 2
    """The scores are divided by 2·d_k. (`/ d_k ** 1/2` does that: `**` binds before `/`.) | How do
    brackets, or `0.5`, say what is meant?"""
    by_fourth_root = scores / Q.shape[-1] ** 0.25
    """The scores are divided by the fourth root of d_k: half of the scale is missing. (One root too
    many does that, and so does scaling only one of Q and K.) | How much of the scale does each of
    them carry?"""
    by_rounded_root = scores / int(math.sqrt(Q.shape[-1]))
    """The root is rounded down to a whole number (`int`, `//`, `floor` and `isqrt` do that). | Does
    √d_k have to be a whole number?"""
    return scores / math.sqrt(Q.shape[-1])


attention_scores.step(fixed_numbers(), at="scale")


@attention_scores.step
def finish(scores):
    """Where does Q Kᵀ / √d_k end, and where does the softmax begin?"""
    softmax_too_early = scores.softmax(-1)
    "A softmax is applied already: these are weights, not the scores."
    return scores


@exercise(
    2,
    "01",
    reread="Three tokens, by hand",
    make_cases=queries_keys_values,
    ready_made=("scaled_dot_product_attention",),
    gives=("output (..., T_q, d_v)", "weights (..., T_q, T_k)"),
    stages="product scale normalise mix=output",
)
def attention(Q, K, V, *, product, scale, normalise, mix, give):
    """softmax(Q Kᵀ / √d_k) V, and the weights."""
    scores = scale(product(Q, K), Q, K)
    weights = normalise(scores)
    return give(mix(weights, Q, K, V), weights, scores)


attention.adopt(attention_scores, "product", "scale")


@attention.step
def normalise(scores):
    """Each query shares out a weight of 1 among the keys. Along which axis do the keys lie?"""
    softmax_over_queries = scores.softmax(-2)
    """The softmax runs over the queries (axis −2): every *column* sums to 1, so the queries share
    out each key."""
    softmax_over_axis_0 = scores.softmax(0)
    "The softmax runs over axis 0. That is the batch, or the queries where there is no batch."
    softmax_over_axis_1 = scores.softmax(1)
    """The softmax runs over axis 1, counted from the front. For a single matrix these are the keys,
    with a batch in front the queries, with heads the heads."""
    softmax_without_axis = scores.softmax(0 if scores.ndim in (0, 1, 3) else 1)
    """The softmax gets no `dim`, and then torch guesses: axis 0 for one or three axes, axis 1
    otherwise."""
    softmax_over_matrix = scores.flatten(-2).softmax(-1).view_as(scores)
    "The softmax runs over the whole matrix at once: all T_q × T_k weights together sum to 1."
    softmax_over_everything = scores.flatten().softmax(-1).view_as(scores)
    "The softmax runs over all numbers of the batch at once."
    softmax_twice = scores.softmax(-1).softmax(-1)
    "The softmax runs twice: the second makes weights of weights, all nearly alike."
    no_softmax = scores
    """There is no softmax: the raw scores are used as weights. | What makes the weights of a query
    positive, with a sum of 1?"""
    log_softmax = scores.log_softmax(-1)
    "The weights are logarithms: `log_softmax` instead of `softmax`. | Can a weight be negative?"
    sigmoid = scores.sigmoid()
    """A sigmoid weighs every key on its own, so a row need not sum to 1. | Which function lets the
    keys of a query compete?"""
    shares_of_scores = shares(scores)
    """The scores are divided by their sum without being exponentiated: weights can be negative, or
    explode where the sum is near 0. | What does the softmax do before it divides?"""
    naive_exponentials = (shares(scores.exp(), small) for small in (0.0, 1e-9))
    """`exp` of the scores as they are overflows (exp(1000) is ∞, and ∞/∞ is NaN) or vanishes
    (exp(−1000) is 0). | Adding one number to a whole row does not change its softmax. Which number
    would help?"""
    global_maximum = shares((scores - scores.max()).exp())
    """The largest number of the *whole* tensor is subtracted before `exp`: rows that lie far below
    it lose all their weight, and become 0/0. | Which maximum can be subtracted from a row without
    changing its softmax?"""
    only_the_best = F.one_hot(scores.argmax(-1), scores.shape[-1]).to(scores.dtype)
    """Only the best key counts: the maximum takes all the weight. | In a soft lookup, how
    much weight do the other keys keep?"""
    future = torch.ones_like(scores).triu(1).bool()
    causal_softmax = scores.masked_fill(future, -math.inf).softmax(-1)
    """The future is blocked as well: masks come later, here every query sees every key. | Which
    line makes that triangle, and was it asked for?"""
    return scores.softmax(-1)


@attention.step
def mix(weights, Q, K, V):
    values_forgotten = weights
    """V is not used: your output is the weights themselves. | What does a query collect, by these
    weights?"""
    weights_transposed = weights.transpose(-2, -1) @ V
    """The weights are transposed before the product with V: the sum runs over queries, not keys. |
    Output row i is a mean of the values by the weights of query i. Which axis is summed over?"""
    keys_collected = weights @ K
    """The weights mix the keys: K is used instead of V. | What are keys for, and what are values
    for?"""
    values_transposed = weights @ V.transpose(-2, -1)
    """V is transposed before the product: dimensions are weighted instead of tokens. | Which axis
    of V belongs to the keys?"""
    return weights @ V


@attention.step
def give(output, weights, scores):
    results_exchanged = (weights, output)
    """The two results are in the wrong order: (weights, output). | What does the exercise ask for
    first?"""
    output_only = output
    "Only the output is returned. | The exercise asks for two things: what is the other one?"
    output_twice = (output, output)
    "The output is returned twice. | The exercise asks for two things: what is the other one?"
    scores_returned = (output, scores)
    """The output is returned with the scaled scores, from before the softmax, instead of the
    weights. | Which of your variables sums to 1 over the keys?"""
    weights_returned_transposed = (output, weights.transpose(-2, -1))
    """The weights are returned transposed: rows are keys and columns are queries. | Row i should
    hold the weights of query i."""
    return output, weights


@attention.step
def whole(Q, K, V):
    raw = Q @ K.transpose(-2, -1)
    scores = raw / math.sqrt(Q.shape[-1])
    by_d_v = (raw / math.sqrt(V.shape[-1])).softmax(-1)
    by_root_d_v = (by_d_v @ V, by_d_v)
    """The scores are divided by √d_v, the root of the width of V. | Which axis is summed over in
    the dot product? Its length is what makes scores large."""
    late = raw.softmax(-1) / math.sqrt(Q.shape[-1])
    scaled_after_softmax = (late @ V, late)
    """The scale comes after the softmax: the softmax sees unscaled scores, and its rows then sum to
    1/√d_k. | Where does √d_k stand in softmax(Q Kᵀ / √d_k) V?"""
    scores_mix_values = (scores @ V, scores.softmax(-1))
    """The output mixes V by the raw scores; only what you return beside it went through the
    softmax. | Which of the two should weight the values?"""
    softmax_after_values = ((scores @ V).softmax(-1), scores.softmax(-1))
    """The output mixes V by the raw scores, and the softmax runs over the result. | What should be
    positive and sum to 1: the weights of a query, or its output?"""
    unscaled_weights_returned = (scores.softmax(-1) @ V, raw.softmax(-1))
    """The output is right, but the weights beside it come from scores without the scale. | Can
    output and weights come from one and the same softmax?"""
