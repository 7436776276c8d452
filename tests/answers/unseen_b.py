"""Wrong answers of people who copy from other tutorials, written without a look at the slips."""

import copy
import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from answers import wrong


# 1 attention_scores


@wrong("attention_scores", "einsum 'bhqd,bhkd->bhqk' of a tutorial: only four axes will do")
def scores_four_axes(Q, K):
    return torch.einsum("bhqd,bhkd->bhqk", Q, K) / math.sqrt(Q.size(-1))


@wrong("attention_scores", "torch.bmm, which takes three axes and no other number")
def scores_bmm(Q, K):
    return torch.bmm(Q, K.transpose(1, 2)) / math.sqrt(Q.size(-1))


@wrong("attention_scores", "Luong's plain dot product, without a scale")
def scores_luong(Q, K):
    return torch.matmul(Q, K.transpose(-1, -2))


@wrong("attention_scores", "gives the weights: a softmax is already in it")
def scores_with_softmax(Q, K):
    scores = torch.matmul(Q, K.transpose(-2, -1)) / math.sqrt(Q.size(-1))
    return F.softmax(scores, dim=-1)


@wrong("attention_scores", "cosine similarity: divides by the norms of query and key")
def scores_cosine(Q, K):
    Q, K = F.normalize(Q, dim=-1), F.normalize(K, dim=-1)
    return Q @ K.mT


# 2 attention


@wrong("attention", "goes through numpy: no gradient, and bfloat16 is refused")
def attention_numpy(Q, K, V):
    q, k, v = (x.detach().numpy() for x in (Q, K, V))
    scores = q @ np.swapaxes(k, -1, -2) / np.sqrt(q.shape[-1])
    e = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights = e / e.sum(axis=-1, keepdims=True)
    return torch.from_numpy(weights @ v), torch.from_numpy(weights)


@wrong("attention", "dropout of 0.1 on the weights, as in the Annotated Transformer")
def attention_dropout(query, key, value):
    d_k = query.size(-1)
    scores = torch.matmul(query, key.transpose(-2, -1)) / math.sqrt(d_k)
    p_attn = F.dropout(scores.softmax(dim=-1), p=0.1)
    return torch.matmul(p_attn, value), p_attn


@wrong("attention", "softmax written with exp, without subtracting the maximum: overflows")
def attention_plain_exp(Q, K, V):
    scores = Q @ K.mT / Q.size(-1) ** 0.5
    e = scores.exp()
    weights = e / e.sum(-1, keepdim=True)
    return weights @ V, weights


@wrong("attention", "softmax normalised over the whole matrix and not over each row")
def attention_whole_matrix(Q, K, V):
    scores = Q @ K.mT / Q.size(-1) ** 0.5
    e = (scores - scores.amax(dim=(-2, -1), keepdim=True)).exp()
    weights = e / e.sum(dim=(-2, -1), keepdim=True)
    return weights @ V, weights


@wrong("attention", "arguments in the order value, key, query, as a Keras tutorial has them")
def attention_value_key_query(value, key, query):
    scores = query @ key.transpose(-2, -1) / math.sqrt(key.shape[-1])
    weights = scores.softmax(-1)
    return weights @ value, weights


# 3 project_qkv


@wrong("project_qkv", "matrix in (in, out) layout: reshapes W to (d_model, 3 d_model)")
def project_in_out_layout(X, W_qkv):
    d = X.shape[-1]
    return (X @ W_qkv.reshape(d, 3 * d)).split(d, dim=-1)


@wrong("project_qkv", "gives one tensor (B, 3, T, d_model) and no triple of Q, K and V")
def project_stacked_axis(X, W_qkv):
    B, T, d = X.shape
    return (X @ W_qkv.T).reshape(B, T, 3, d).transpose(1, 2)


@wrong("project_qkv", "q, k, v layout of another paper: rows stacked V, K, Q")
def project_v_first(X, W_qkv):
    d = X.shape[-1]
    W_v, W_k, W_q = W_qkv[:d], W_qkv[d : 2 * d], W_qkv[2 * d :]
    return X @ W_q.T, X @ W_k.T, X @ W_v.T


@wrong("project_qkv", "a fresh nn.Linear of its own and not the given matrix")
def project_fresh_linear(X, W_qkv):
    d = X.shape[-1]
    c_attn = nn.Linear(d, 3 * d, bias=False).to(X)
    return c_attn(X).split(d, dim=2)


# 4 count_parameters


@wrong("count_parameters", "multi-query attention: one key and one value head for all")
def parameters_multi_query(d_model, n_heads, d_k):
    q = d_model * n_heads * d_k
    kv = 2 * d_model * d_k
    o = n_heads * d_k * d_model
    return q + kv + o


@wrong("count_parameters", "adds the feed-forward layer of 8 d_model²")
def parameters_with_ffn(d_model, n_heads, d_k):
    return 4 * d_model * n_heads * d_k + 8 * d_model**2


@wrong("count_parameters", "12 d_model², the rule of thumb for a block")
def parameters_rule_of_thumb(d_model, n_heads, d_k):
    return 12 * d_model**2


@wrong("count_parameters", "divides d_model by the heads and ignores the given d_k; a float")
def parameters_head_dim_float(d_model, n_heads, d_k):
    head_dim = d_model / n_heads
    return 3 * n_heads * d_model * head_dim + d_model * d_model


# 5 split_heads


@wrong("split_heads", "folds the heads into the batch: (B · n_heads, T, d_k), as d2l does")
def split_into_batch(X, num_heads):
    X = X.reshape(X.shape[0], X.shape[1], num_heads, -1)
    X = X.permute(0, 2, 1, 3)
    return X.reshape(-1, X.shape[2], X.shape[3])


@wrong("split_heads", "thinks the sequence comes first: x is (T, B, d_model)")
def split_sequence_first(x, n_heads):
    T, B, E = x.shape
    return x.reshape(T, B * n_heads, E // n_heads).transpose(0, 1).reshape(B, n_heads, T, -1)


@wrong("split_heads", "gives a list of the heads' slices, each (B, T, d_k)")
def split_list(x, n_heads):
    return list(x.chunk(n_heads, dim=-1))


@wrong("split_heads", "stacks the heads in front: (n_heads, B, T, d_k)")
def split_heads_in_front(x, n_heads):
    return torch.stack(torch.chunk(x, n_heads, dim=-1), dim=0)


# 6 merge_heads


@wrong("merge_heads", "the first half only: gives (B, T, n_heads, d_k)")
def merge_half_way(x):
    return x.transpose(1, 2).contiguous()


@wrong("merge_heads", "exchanges the last two axes, not heads and tokens, before reshape")
def merge_wrong_transpose(x):
    B, H, T, D = x.shape
    return x.transpose(-1, -2).reshape(B, T, H * D)


@wrong("merge_heads", "concatenates the heads along the tokens: (B, n_heads · T, d_k)")
def merge_along_tokens(x):
    return torch.cat(list(x.unbind(1)), dim=1)


@wrong("merge_heads", "the mean over heads, as for drawing weights")
def merge_mean(x):
    return x.mean(1)


# 7 causal_mask


@wrong("causal_mask", "additive mask of 0 and −∞, as nn.Transformer makes it")
def causal_additive(sz):
    return torch.triu(torch.full((sz, sz), float("-inf")), diagonal=1)


@wrong("causal_mask", "subsequent_mask == 0 of the Annotated Transformer, with its leading axis")
def causal_annotated(size):
    attn_shape = (1, size, size)
    subsequent_mask = torch.triu(torch.ones(attn_shape), diagonal=1).type(torch.uint8)
    return subsequent_mask == 0


@wrong("causal_mask", "nanoGPT's tril buffer of ones, (1, 1, T, T)")
def causal_nanogpt(block_size):
    return torch.tril(torch.ones(block_size, block_size)).view(1, 1, block_size, block_size)


@wrong("causal_mask", "np.triu, which gives a numpy array")
def causal_numpy(T):
    return np.triu(np.ones((T, T), dtype=bool), k=1)


# 8 padding_mask


@wrong("padding_mask", "attention_mask of Hugging Face: 1 at real tokens, (B, T) of int64")
def padding_hugging_face(lengths, T):
    steps = torch.arange(T, device=lengths.device)
    return (steps[None, :] < lengths[:, None]).long()


@wrong("padding_mask", "BERT's extended mask: floats 0 and −10000")
def padding_bert(lengths, T):
    attention_mask = torch.arange(T, device=lengths.device)[None, :] < lengths[:, None]
    extended = attention_mask[:, None, None, :].float()
    return (1.0 - extended) * -10000.0


@wrong("padding_mask", "takes lengths for token ids and compares with the pad id 0")
def padding_pad_id(lengths, T):
    return (lengths == 0)[:, None, None, None].expand(-1, 1, 1, T)


@wrong("padding_mask", "takes T from the longest length and not the T it is given")
def padding_longest(lengths, T):
    max_len = int(lengths.max())
    return (torch.arange(max_len)[None, :] >= lengths[:, None])[:, None, None, :]


@wrong("padding_mask", "(B, T, T): repeats the row for each query")
def padding_expanded(lengths, T):
    pad = torch.arange(T, device=lengths.device)[None] >= lengths[:, None]
    return pad.unsqueeze(1).expand(-1, T, -1)


# 9 masked_softmax


@wrong("masked_softmax", "masked_fill(mask == 0, −1e9): True = keep, and a finite fill")
def softmax_annotated(scores, mask):
    scores = scores.masked_fill(mask == 0, -1e9)
    return scores.softmax(dim=-1)


@wrong("masked_softmax", "adds the mask as if it were additive: True adds 1")
def softmax_mask_added(scores, mask):
    return (scores + mask).softmax(dim=-1)


@wrong("masked_softmax", "subtracts 10000, which scores of ±1e4 make up for")
def softmax_minus_10000(scores, mask):
    empty = mask.all(dim=-1, keepdim=True)
    biased = scores + mask.to(scores.dtype) * -10000.0
    return biased.softmax(dim=-1).masked_fill(empty, 0.0)


@wrong("masked_softmax", "torch.finfo(dtype).min as the fill: an empty row gets equal shares")
def softmax_finfo(scores, mask):
    return torch.softmax(scores.masked_fill(mask, torch.finfo(scores.dtype).min), dim=-1)


@wrong("masked_softmax", "exp, zero the blocked, normalise with + 1e-9: overflows for large scores")
def softmax_exp_epsilon(scores, mask):
    e = torch.exp(scores) * (~mask)
    return e / (e.sum(dim=-1, keepdim=True) + 1e-9)


@wrong("masked_softmax", "upcasts to float32 and does not go back to the dtype of the scores")
def softmax_upcast(scores, mask):
    scores = scores.float()
    empty = mask.all(-1, keepdim=True)
    weights = scores.masked_fill(mask & ~empty, -torch.inf).softmax(-1, dtype=torch.float32)
    return weights.masked_fill(empty, 0)


@wrong("masked_softmax", "multiplies the scores with the kept ones and −∞ with the mask: 0 · −∞")
def softmax_zero_times_infinity(scores, mask):
    scores = scores * ~mask + mask * float("-inf")
    return scores.softmax(dim=-1).nan_to_num(0.0)


# 10 sum_of_head_writes


@wrong("sum_of_head_writes", "W_o.view(n_heads, d_k, d_model): an (in, out) layout")
def writes_in_out(heads, W_o):
    B, h, T, d = heads.shape
    return torch.einsum("bhtd,hdm->btm", heads, W_o.reshape(h, d, -1))


@wrong("sum_of_head_writes", "interleaved columns: takes column c · h + i for head i")
def writes_interleaved(heads, W_o):
    B, h, T, d = heads.shape
    return torch.einsum("bhtd,mdh->btm", heads, W_o.reshape(-1, d, h))


@wrong("sum_of_head_writes", "divides the sum by the number of heads: a mean of writes")
def writes_mean(heads, W_o):
    h, d = heads.shape[1], heads.shape[-1]
    slabs = W_o.split(d, dim=1)
    return torch.stack([heads[:, i] @ slabs[i].T for i in range(h)]).mean(0)


@wrong("sum_of_head_writes", "gives each head's write, (B, h, T, d_model), and forgets the sum")
def writes_not_summed(heads, W_o):
    B, h, T, d = heads.shape
    return torch.einsum("bhtd,mhd->bhtm", heads, W_o.reshape(-1, h, d))


# 11 MultiHeadAttention


def _heads(x, h):
    return x.unflatten(-1, (h, -1)).transpose(1, 2)


class _Layers(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.h = n_heads
        self.w_q = nn.Linear(d_model, d_model, bias=False)
        self.w_k = nn.Linear(d_model, d_model, bias=False)
        self.w_v = nn.Linear(d_model, d_model, bias=False)
        self.w_o = nn.Linear(d_model, d_model, bias=False)

    def qkv(self, x):
        return (_heads(layer(x), self.h) for layer in (self.w_q, self.w_k, self.w_v))


@wrong("MultiHeadAttention", "hands the mask to F.scaled_dot_product_attention, where True = keep")
class MaskForTorch(_Layers):
    def forward(self, x, mask=None):
        q, k, v = self.qkv(x)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.w_o(y.transpose(1, 2).flatten(2))


@wrong("MultiHeadAttention", "the Annotated Transformer's mask == 0, −1e9 and mask.unsqueeze(1)")
class AnnotatedMask(_Layers):
    def forward(self, x, mask=None):
        if mask is not None:
            mask = mask.unsqueeze(1)
        q, k, v = self.qkv(x)
        scores = q @ k.mT / math.sqrt(q.size(-1))
        if mask is not None:
            scores = scores.masked_fill(mask == 0, -1e9)
        y = scores.softmax(dim=-1) @ v
        return self.w_o(y.transpose(1, 2).flatten(2))


@wrong("MultiHeadAttention", "a dropout of 0.1 on the weights, in training mode from the start")
class DropsWeights(_Layers):
    def __init__(self, d_model, n_heads):
        super().__init__(d_model, n_heads)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x, mask=None):
        q, k, v = self.qkv(x)
        scores = q @ k.mT / math.sqrt(q.size(-1))
        if mask is not None:
            empty = mask.all(-1, keepdim=True)
            scores = scores.masked_fill(mask & ~empty, -math.inf)
            weights = scores.softmax(-1).masked_fill(empty, 0.0)
        else:
            weights = scores.softmax(-1)
        y = self.dropout(weights) @ v
        return self.w_o(y.transpose(1, 2).flatten(2))


@wrong("MultiHeadAttention", "nanoGPT's class: always causal, and no other mask")
class AlwaysCausal(_Layers):
    def forward(self, x, mask=None):
        q, k, v = self.qkv(x)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.w_o(y.transpose(1, 2).flatten(2))


@wrong("MultiHeadAttention", "one fused layer c_attn and a c_proj, GPT-2's names")
class FusedLikeGPT2(nn.Module):
    def __init__(self, n_embd, n_head):
        super().__init__()
        self.n_head = n_head
        self.c_attn = nn.Linear(n_embd, 3 * n_embd)
        self.c_proj = nn.Linear(n_embd, n_embd)

    def forward(self, x, mask=None):
        B, T, C = x.size()
        q, k, v = (_heads(part, self.n_head) for part in self.c_attn(x).split(C, dim=2))
        keep = None if mask is None else ~mask
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=keep).nan_to_num()
        return self.c_proj(y.transpose(1, 2).flatten(2))


@wrong("MultiHeadAttention", "residual and layer norm of the block are in the class")
class WithResidual(_Layers):
    def forward(self, x, mask=None):
        q, k, v = self.qkv(x)
        scores = q @ k.mT / math.sqrt(q.size(-1))
        if mask is not None:
            empty = mask.all(-1, keepdim=True)
            weights = scores.masked_fill(mask & ~empty, -math.inf).softmax(-1)
            weights = weights.masked_fill(empty, 0.0)
        else:
            weights = scores.softmax(-1)
        y = self.w_o((weights @ v).transpose(1, 2).flatten(2))
        return F.layer_norm(x + y, x.shape[-1:])


@wrong("MultiHeadAttention", "gives (output, weights) like nn.MultiheadAttention")
class GivesAPair(_Layers):
    def forward(self, x, mask=None):
        q, k, v = self.qkv(x)
        scores = q @ k.mT / math.sqrt(q.size(-1))
        if mask is not None:
            empty = mask.all(-1, keepdim=True)
            weights = scores.masked_fill(mask & ~empty, -math.inf).softmax(-1)
            weights = weights.masked_fill(empty, 0.0)
        else:
            weights = scores.softmax(-1)
        return self.w_o((weights @ v).transpose(1, 2).flatten(2)), weights


@wrong("MultiHeadAttention", "clones the query layer for k and v; heads interleaved in the split")
class ClonedAndInterleaved(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.h = n_heads
        self.w_q = nn.Linear(d_model, d_model)
        self.w_k = copy.deepcopy(self.w_q)
        self.w_v = copy.deepcopy(self.w_q)
        self.w_o = nn.Linear(d_model, d_model)

    def forward(self, x, mask=None):
        B, T, D = x.shape
        q, k, v = (
            w(x).reshape(B, T, D // self.h, self.h).permute(0, 3, 1, 2)
            for w in (self.w_q, self.w_k, self.w_v)
        )
        keep = None if mask is None else ~mask
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=keep).nan_to_num()
        return self.w_o(y.transpose(1, 2).flatten(2))


# 12 next_token_loss


@wrong("next_token_loss", "tokens of value 0 are padding and do not count: ignore_index=0")
def loss_ignores_zero(logits, tokens):
    V = logits.size(-1)
    return F.cross_entropy(logits[:, :-1].reshape(-1, V), tokens[:, 1:].reshape(-1), ignore_index=0)


@wrong("next_token_loss", "label smoothing of 0.1, as in the paper")
def loss_label_smoothing(logits, tokens):
    V = logits.size(-1)
    return F.cross_entropy(
        logits[:, :-1].reshape(-1, V), tokens[:, 1:].reshape(-1), label_smoothing=0.1
    )


@wrong("next_token_loss", "nanoGPT's loss, whose targets had been shifted by the loader")
def loss_nanogpt(logits, targets):
    return F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1), ignore_index=-1)


@wrong("next_token_loss", "Keras order: targets first, then predictions")
def loss_keras_order(y_true, y_pred):
    return F.cross_entropy(y_pred[:, 1:].flatten(), y_true[:, :-1].flatten(0, 1))


@wrong("next_token_loss", "perplexity: the exponential of the loss")
def loss_perplexity(logits, tokens):
    shift_logits, shift_labels = logits[..., :-1, :], tokens[..., 1:]
    return torch.exp(F.cross_entropy(shift_logits.flatten(0, 1), shift_labels.flatten()))


@wrong("next_token_loss", "bits: the loss divided by log 2, and the last prediction wraps round")
def loss_bits_rolled(logits, tokens):
    targets = torch.roll(tokens, -1, dims=1)
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten()) / math.log(2)


@wrong("next_token_loss", "nll_loss on the logits themselves, without log_softmax")
def loss_nll_of_logits(logits, tokens):
    return F.nll_loss(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())


# 13 previous_token_score


@wrong("previous_token_score", "torch.diagonal's default axes: 0 and 1, so heads and queries")
def previous_default_axes(weights):
    return torch.diagonal(weights, offset=-1).mean(-1)


@wrong("previous_token_score", "share of queries whose largest weight is on the token before")
def previous_argmax_share(weights):
    T = weights.shape[-1]
    best = weights.argmax(dim=-1)[:, 1:]
    return (best == torch.arange(T - 1, device=weights.device)).to(weights.dtype).mean(-1)


@wrong("previous_token_score", "TransformerLens' score with the first row counted as a zero")
def previous_trace_over_all(weights):
    T = weights.shape[-1]
    eye = torch.eye(T, device=weights.device, dtype=weights.dtype).roll(1, 0)
    eye[0] = 0
    return (weights * eye).sum(dim=(-2, -1)) / T


@wrong("previous_token_score", "torch.roll wraps round: query 0 counts with the last token")
def previous_rolled(weights):
    T = weights.shape[-1]
    i = torch.arange(T, device=weights.device)
    return weights[:, i, (i - 1) % T].mean(-1)


# 14 count_flops


@wrong("count_flops", "6 operations per parameter, the rule for training")
def flops_training_rule(T, d_model, n_heads):
    return 6 * 4 * d_model * d_model * T


@wrong("count_flops", "adds the feed-forward layer's 16 T d_model²")
def flops_with_ffn(T, d_model, n_heads):
    return 8 * T * d_model**2 + 4 * T**2 * d_model + 16 * T * d_model**2


@wrong("count_flops", "adds 5 operations for the softmax of each score")
def flops_with_softmax(T, d_model, n_heads):
    return 8 * T * d_model**2 + 4 * T**2 * d_model + 5 * n_heads * T * T


@wrong("count_flops", "halves the two products, since a causal mask skips half")
def flops_causal_half(T, d_model, n_heads):
    return 8 * T * d_model**2 + 2 * T**2 * d_model


# 15 blockwise_attention


@wrong("blockwise_attention", "takes blocks of queries against all keys: holds (block, T_k) scores")
def blockwise_queries(Q, K, V, block):
    out = []
    for q in Q.split(block):
        weights = (q @ K.T / math.sqrt(Q.size(-1))).softmax(-1)
        out.append(weights @ V)
    return torch.cat(out)


@wrong("blockwise_attention", "flash attention's formula with the old maximum in both exponents")
def blockwise_flash_wrong_maximum(Q, K, V, block):
    m = Q.new_full((len(Q), 1), -math.inf)
    l = Q.new_zeros(len(Q), 1)
    o = Q.new_zeros(len(Q), V.size(1))
    for k, v in zip(K.split(block), V.split(block), strict=True):
        s = Q @ k.T / math.sqrt(Q.size(1))
        m_block = s.max(dim=1, keepdim=True).values
        m_new = torch.maximum(m, m_block)
        p = torch.exp(s - m_block)
        l = torch.exp(m - m_new) * l + p.sum(1, keepdim=True)
        o = torch.exp(m - m_new) * o + p @ v
        m = m_new
    return o / l


@wrong("blockwise_attention", "one maximum for all queries: a query far below it gets 0 / 0")
def blockwise_one_maximum(Q, K, V, block):
    m, total, mix = Q.new_tensor(-math.inf), 0.0, 0.0
    for k, v in zip(K.split(block), V.split(block), strict=True):
        s = Q @ k.T / math.sqrt(Q.size(1))
        new = torch.maximum(m, s.max())
        e = (s - new).exp()
        total = total * (m - new).exp() + e.sum(1, keepdim=True)
        mix = mix * (m - new).exp() + e @ v
        m = new
    return mix / total


@wrong("blockwise_attention", "averages the blocks' outputs, each from a softmax of its own")
def blockwise_mean_of_blocks(Q, K, V, block):
    outs = [
        (Q @ k.T / math.sqrt(Q.size(1))).softmax(-1) @ v
        for k, v in zip(K.split(block), V.split(block), strict=True)
    ]
    return torch.stack(outs).mean(0)


@wrong("blockwise_attention", "computes in float32 and gives float32 back, whatever the dtype of Q")
def blockwise_float32(Q, K, V, block):
    q, k, v = Q.float(), K.float(), V.float()
    m = torch.full((len(q), 1), -math.inf, device=q.device)
    total = torch.zeros(len(q), 1, device=q.device)
    mix = torch.zeros(len(q), v.shape[1], device=q.device)
    for i in range(0, len(k), block):
        s = q @ k[i : i + block].T / math.sqrt(q.shape[1])
        new = torch.maximum(m, s.amax(1, keepdim=True))
        e, shrink = (s - new).exp(), (m - new).exp()
        total = total * shrink + e.sum(1, keepdim=True)
        mix = mix * shrink + e @ v[i : i + block]
        m = new
    return mix / total


# 16 rotate


@wrong("rotate", "turns neighbours, 0 with 1 and 2 with 3, as the paper does")
def rotate_neighbours(x, positions):
    d = x.shape[-1]
    theta = 10_000.0 ** (-torch.arange(0, d, 2, device=x.device).double() / d)
    angle = positions[:, None] * theta
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    a, b = x[..., 0::2], x[..., 1::2]
    return torch.stack((a * cos - b * sin, a * sin + b * cos), dim=-1).flatten(-2)


@wrong("rotate", "adds sinusoidal positions to x and turns nothing")
def rotate_adds_sinusoids(x, positions):
    d = x.shape[-1]
    speed = 10_000.0 ** (-torch.arange(0, d, 2, device=x.device).double() / d)
    angle = positions[:, None] * speed
    pe = torch.stack((angle.sin(), angle.cos()), dim=-1).flatten(-2)
    return x + pe.to(x.dtype)


@wrong("rotate", "Llama 3's base of 500,000 in place of 10,000")
def rotate_other_base(x, positions):
    half = x.shape[-1] // 2
    inv_freq = 1.0 / 500_000.0 ** (torch.arange(half, device=x.device).double() / half)
    freqs = positions[:, None] * inv_freq
    emb = torch.cat((freqs, freqs), dim=-1)
    turned = torch.cat((-x[..., half:], x[..., :half]), dim=-1)
    return x * emb.cos().to(x.dtype) + turned * emb.sin().to(x.dtype)


@wrong("rotate", "rotate_half of halves, but cosine and sine repeated for neighbours")
def rotate_mixed_layouts(x, positions):
    d = x.shape[-1]
    inv_freq = 10_000.0 ** (-torch.arange(0, d, 2, device=x.device).double() / d)
    freqs = (positions[:, None] * inv_freq).repeat_interleave(2, dim=-1)
    turned = torch.cat((-x[..., d // 2 :], x[..., : d // 2]), dim=-1)
    return x * freqs.cos().to(x.dtype) + turned * freqs.sin().to(x.dtype)


@wrong("rotate", "rotate_half without the minus before the second half")
def rotate_half_no_minus(x, positions):
    half = x.shape[-1] // 2
    inv_freq = 10_000.0 ** (-torch.arange(half, device=x.device).double() / half)
    freqs = positions[:, None] * inv_freq
    emb = torch.cat((freqs, freqs), dim=-1)
    turned = torch.cat((x[..., half:], x[..., :half]), dim=-1)
    return x * emb.cos().to(x.dtype) + turned * emb.sin().to(x.dtype)


# 17 cached_attention


@wrong("cached_attention", "F.scaled_dot_product_attention with is_causal=True over the cache")
def cached_is_causal(q, k, v, cache):
    if cache is not None:
        k = torch.cat([cache[0], k], dim=-2)
        v = torch.cat([cache[1], v], dim=-2)
    return F.scaled_dot_product_attention(q, k, v, is_causal=True), (k, v)


@wrong("cached_attention", "is_causal only without a cache; with one, several new tokens see all")
def cached_causal_only_first(q, k, v, cache):
    if cache is not None:
        k = torch.cat([cache[0], k], dim=-2)
        v = torch.cat([cache[1], v], dim=-2)
    y = F.scaled_dot_product_attention(q, k, v, is_causal=cache is None)
    return y, (k, v)


@wrong("cached_attention", "concatenates along axis 1, the heads, as if they were (B, T, h, d)")
def cached_axis_one(q, k, v, cache):
    if cache is not None:
        k, v = torch.cat([cache[0], k], dim=1), torch.cat([cache[1], v], dim=1)
    n, m = q.shape[2], k.shape[2]
    keep = torch.ones(n, m, dtype=torch.bool, device=q.device).tril(m - n)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=keep), (k, v)


@wrong("cached_attention", "gives context, k, v: three results and no pair of two")
def cached_three_results(q, k, v, cache):
    if cache is not None:
        k, v = torch.cat([cache[0], k], dim=2), torch.cat([cache[1], v], dim=2)
    n, m = q.shape[2], k.shape[2]
    keep = torch.ones(n, m, dtype=torch.bool, device=q.device).tril(m - n)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=keep), k, v


@wrong("cached_attention", "stores the cache as (v, k) and reads it as (k, v)")
def cached_pair_exchanged(q, k, v, cache):
    if cache is not None:
        k, v = torch.cat([cache[0], k], dim=2), torch.cat([cache[1], v], dim=2)
    n, m = q.shape[2], k.shape[2]
    keep = torch.ones(n, m, dtype=torch.bool, device=q.device).tril(m - n)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=keep), (v, k)


@wrong("cached_attention", "takes the cached keys for old queries and gives all rows, old and new")
def cached_all_rows(q, k, v, cache):
    if cache is not None:
        q = torch.cat([cache[0], q], dim=2)
        k = torch.cat([cache[0], k], dim=2)
        v = torch.cat([cache[1], v], dim=2)
    return F.scaled_dot_product_attention(q, k, v, is_causal=True), (k, v)


# 18 grouped_scores


@wrong("grouped_scores", "view(B, h/h_kv, h_kv, …): the groups the other way round")
def grouped_other_view(q, k):
    B, h, T, d = q.shape
    g = k.shape[1]
    q = q.reshape(B, h // g, g, T, d)
    return (q @ k[:, None].mT / math.sqrt(d)).reshape(B, h, T, -1)


@wrong("grouped_scores", "takes key head 0 for all queries, multi-query attention")
def grouped_multi_query(q, k):
    return q @ k[:, :1].mT / math.sqrt(q.size(-1))


@wrong("grouped_scores", "repeat_kv of Llama written for (B, T, h, d): repeats axis 2")
def grouped_repeat_kv(q, k):
    n_rep = q.shape[1] // k.shape[1]
    B, T, n_kv, d = k.shape
    k = k[:, :, :, None, :].expand(B, T, n_kv, n_rep, d).reshape(B, T, n_kv * n_rep, d)
    return q @ k.transpose(2, 3) / math.sqrt(d)


@wrong("grouped_scores", "adds up the query heads of a group: gives (B, h_kv, T_q, T_k)")
def grouped_summed_queries(q, k):
    B, h, T, d = q.shape
    g = k.shape[1]
    q = q.reshape(B, g, h // g, T, d).sum(dim=2)
    return q @ k.mT / math.sqrt(d)


@wrong("grouped_scores", "scales by the root of d_model = h · d_k")
def grouped_scaled_by_model(q, k):
    k = torch.repeat_interleave(k, q.size(1) // k.size(1), dim=1)
    return q @ k.mT / math.sqrt(q.size(1) * q.size(-1))


# 19 cached_mask


@wrong("cached_mask", "Mistral's additive mask of 0 and −∞")
def mask_additive(n_new, n_cached, window):
    full = torch.full((n_new, n_cached + n_new), -math.inf)
    mask = torch.triu(full, diagonal=n_cached + 1)
    if window is not None:
        mask = mask + torch.tril(full, diagonal=n_cached - window)
    return mask


@wrong("cached_mask", "triu(1) of the wide matrix: the diagonal counts from the top left")
def mask_triu_top_left(n_new, n_cached, window):
    ones = torch.ones(n_new, n_cached + n_new, dtype=torch.bool)
    mask = ones.triu(1)
    if window is not None:
        mask |= ones.tril(n_cached - window)
    return mask


@wrong("cached_mask", "tril(n_cached − window + 1): sees one key too few")
def mask_window_one_less(n_new, n_cached, window):
    ones = torch.ones(n_new, n_cached + n_new, dtype=torch.bool)
    mask = ones.triu(n_cached + 1)
    if window is not None:
        mask |= ones.tril(n_cached - window + 1)
    return mask


@wrong("cached_mask", "the cached part of the mask is missing: (n_new, n_new)")
def mask_square(n_new, n_cached, window):
    i = torch.arange(n_new)
    mask = i[None, :] > i[:, None]
    if window is not None:
        mask = mask | (i[:, None] - i[None, :] >= window)
    return mask


@wrong("cached_mask", "a symmetric window, Longformer's: the future within it is open")
def mask_symmetric(n_new, n_cached, window):
    query = torch.arange(n_cached, n_cached + n_new)[:, None]
    key = torch.arange(n_cached + n_new)[None, :]
    if window is None:
        return key > query
    return (query - key).abs() >= window


@wrong("cached_mask", "keeps only the last `window` keys for all queries alike")
def mask_last_keys(n_new, n_cached, window):
    total = n_cached + n_new
    mask = torch.ones(n_new, total, dtype=torch.bool).triu(n_cached + 1)
    if window is not None:
        mask[:, : max(0, total - window)] = True
    return mask


# 12b silence


@wrong("silence", "head mask of Hugging Face, with the mask on the last axis")
def silence_last_axis(heads, i):
    head_mask = torch.ones(heads.shape[-1], dtype=heads.dtype, device=heads.device)
    head_mask[i] = 0
    return heads * head_mask


@wrong("silence", "mean ablation: sets the head to its mean over tokens")
def silence_mean(heads, i):
    quiet = heads.clone()
    quiet[:, i] = heads[:, i].mean(dim=1, keepdim=True)
    return quiet


@wrong("silence", "prunes the head: gives one head fewer")
def silence_pruned(heads, i):
    return torch.cat([heads[:, :i], heads[:, i + 1 :]], dim=1)


@wrong("silence", "scales the other heads up, as dropout does")
def silence_like_dropout(heads, i):
    h = heads.shape[1]
    mask = torch.ones(1, h, 1, 1, dtype=heads.dtype, device=heads.device)
    mask[:, i] = 0
    return heads * mask * (h / max(1, h - 1))


# 13b solved


@wrong("solved", "the mean over heads first: one answer for all")
def solved_mean(weights, query, right, wrong):
    mean = weights.mean(0)
    return mean[query, right] > mean[query, wrong]


@wrong("solved", "arguments in the order right, wrong, query")
def solved_argument_order(attn, correct, incorrect, position):
    return attn[:, position, correct] > attn[:, position, incorrect]


@wrong("solved", "weights[query, right], as if there were no head axis")
def solved_no_head_axis(weights, query, right, wrong):
    return weights[query, right] > weights[query, wrong]


@wrong("solved", "asks for a margin of 0.1")
def solved_margin(weights, query, right, wrong):
    return weights[:, query, right] - weights[:, query, wrong] > 0.1
