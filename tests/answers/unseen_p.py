"""Right at the sizes that were tried first: one query, larger blocks, float16, numbers moved."""

import math
import torch
import torch.nn as nn
import torch.nn.functional as F

from answers import right, wrong


def running(Q, K, V, block):
    largest = Q.new_full((len(Q), 1), -math.inf)
    total, output = Q.new_zeros(len(Q), 1), Q.new_zeros(len(Q), V.shape[-1])
    for k, v in zip(K.split(block), V.split(block)):
        S = Q @ k.T / math.sqrt(Q.shape[-1])
        new = torch.maximum(largest, S.amax(1, keepdim=True))
        fade, P = (largest - new).exp(), (S - new).exp()
        total, output, largest = total * fade + P.sum(1, keepdim=True), output * fade + P @ v, new
    return output / total


# --- 2: a ready-made output, and weights of one's own ---


@right("attention")
def output_ready_made(Q, K, V):
    weights = (Q @ K.mT / math.sqrt(Q.shape[-1])).softmax(-1)
    return F.scaled_dot_product_attention(Q, K, V), weights


# --- 5 and 6: the right numbers, at other places: nothing is lost ---


def in_pairs(first, n):
    """n columns from `first` on, neighbours exchanged: 1 0 3 2 4."""
    return [first + (i ^ 1 if i ^ 1 < n else i) for i in range(n)]


@wrong("split_heads", "exchanges neighbouring columns of every head")
def neighbours_in_a_head_exchanged(x, n_heads):
    d_k = x.shape[-1] // n_heads
    return torch.stack([x[..., in_pairs(i * d_k, d_k)] for i in range(n_heads)], 1)


@wrong("merge_heads", "exchanges neighbouring columns")
def merged_with_neighbours_exchanged(x):
    B, h, T, d_k = x.shape
    columns = [x[:, c // d_k, :, c % d_k] for c in in_pairs(0, h * d_k)]
    return torch.stack(columns, -1)


# --- 11 ---


class Plain(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.w_q, self.w_k, self.w_v, self.w_o = (nn.Linear(d_model, d_model) for _ in range(4))

    def forward(self, x, mask=None):
        B, T, D = x.shape
        made = (self.w_q(x), self.w_k(x), self.w_v(x))
        Q, K, V = (y.view(B, T, self.n_heads, -1).transpose(1, 2) for y in made)
        S = Q @ K.mT / math.sqrt(D // self.n_heads)
        if mask is not None:
            S = S.masked_fill(mask, self.low(S))
        A = S.softmax(-1)
        if mask is not None:
            A = A.masked_fill(mask.all(-1, keepdim=True), 0.0)
        return self.w_o((A @ V).transpose(1, 2).reshape(B, T, D))


@right("MultiHeadAttention")
class LowestOfDtype(Plain):
    def low(self, S):
        return torch.finfo(S.dtype).min


@wrong("MultiHeadAttention", "−1e4 for float16 only, above which a score may lie")
class LowForHalf(Plain):
    def low(self, S):
        return -1e4 if S.dtype == torch.float16 else -1e9


# --- 15 ---


@wrong("blockwise_attention", "two blocks at a time")
def two_blocks_at_once(Q, K, V, block):
    return running(Q, K, V, 2 * block)


@wrong("blockwise_attention", "never fewer than 8 keys at a time")
def at_least_eight(Q, K, V, block):
    return running(Q, K, V, max(block, 8))


@wrong("blockwise_attention", "a single query meets all keys at once")
def one_query_at_once(Q, K, V, block):
    if len(Q) == 1:
        return (Q @ K.T / math.sqrt(Q.shape[1])).softmax(1) @ V
    return running(Q, K, V, block)


@wrong("blockwise_attention", "keeps the logsumexp and the output of every block")
def sums_of_all_blocks(Q, K, V, block):
    sums, outputs = [], []
    for k, v in zip(K.split(block), V.split(block)):
        S = Q @ k.T / math.sqrt(Q.shape[1])
        sums.append(S.logsumexp(1))
        outputs.append(S.softmax(1) @ v)
    shares = torch.stack(sums, 1).softmax(1)
    return (shares[..., None] * torch.stack(outputs, 1)).sum(1)


@right("blockwise_attention")
def sums_beside_the_output(Q, K, V, block):
    """The sum of the exponentials is one more column of the output."""
    V = torch.cat((V, V.new_ones(len(V), 1)), 1)
    largest, output = Q.new_full((len(Q), 1), -math.inf), Q.new_zeros(len(Q), V.shape[1])
    for k, v in zip(K.split(block), V.split(block)):
        S = Q @ k.T / math.sqrt(Q.shape[1])
        new = torch.cat((largest, S), 1).amax(1, keepdim=True)
        output, largest = output * (largest - new).exp() + (S - new).exp() @ v, new
    return output[:, :-1] / output[:, -1:]


@right("blockwise_attention")
def query_by_query(Q, K, V, block):
    return torch.cat([running(q[None], K, V, block) for q in Q])


@right("blockwise_attention")
def blocks_of_indices(Q, K, V, block):
    largest = torch.full_like(Q[:, :1], -torch.inf)
    total, output = torch.zeros_like(largest), Q.new_zeros(len(Q), V.shape[1])
    for here in torch.arange(len(K), device=Q.device).split(block):
        S = Q @ K[here].T / Q.shape[-1] ** 0.5
        new = torch.maximum(largest, S.amax(1, keepdim=True))
        fade, P = (largest - new).exp(), (S - new).exp()
        total, output = total * fade + P.sum(1, keepdim=True), output * fade + P @ V[here]
        largest = new
    return output / total


# --- 17 ---


@right("cached_attention")
def bias_of_the_lower_right(q, k, v, cache):
    from torch.nn.attention.bias import causal_lower_right

    if cache is not None:
        k, v = torch.cat((cache[0], k), dim=2), torch.cat((cache[1], v), dim=2)
    bias = causal_lower_right(q.shape[2], k.shape[2])
    return F.scaled_dot_product_attention(q, k, v, attn_mask=bias), (k, v)
