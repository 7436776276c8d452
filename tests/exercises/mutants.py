"""Searches for false passes: every known right answer, broken in one place at a time.

A mutant that passes its check must agree with an independent reference, in plain loops, on inputs
that no check uses. `survivors` yields those that do not.
"""

import ast
import math
import random
import types
from collections.abc import Iterator
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

import reference
from answers import Answer
from mha_course import check
from mha_course.engine.changes import changes
from mha_course.engine.compare import difference
from mha_course.engine.places import Bounded, can_be_changed, versions
from mha_course.engine.safely import fresh, undisturbed
from mha_course.engine.source import Source
from mha_course.exercises import Bound, Exercise


@cache
def changeable(answer: Any) -> Source | None:
    source = Source(answer)
    return source if can_be_changed(source) else None


def mutants(
    answer: Any, share: float = 1.0, chance: random.Random | None = None
) -> Iterator[tuple[str, Any]]:
    """Each change, in words, and the answer with it; only a share of the changes, by chance."""
    if source := changeable(answer):
        some = (c for c in changes(source.tree) if chance is None or chance.random() < share)
        for change, made in versions(source, some):
            yield f"{ast.unparse(change.node)} -> {ast.unparse(change.new)}", made


# --- the reference: loops, reference.py's too, and inputs of its own ------------------------------


def _seed(chance: random.Random) -> None:
    """Only the CPU's generator: for other devices torch would record the stack each time."""
    torch.default_generator.manual_seed(chance.randrange(2**31))


def _normal(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def _indices(x: Tensor) -> Iterator[tuple[int, ...]]:
    return (
        tuple(i)
        for i in torch.cartesian_prod(*map(torch.arange, x.shape)).view(-1, x.ndim).tolist()
    )


def cases(name: str, chance: random.Random) -> tuple[tuple[Any, ...], Any]:
    """Inputs that no check uses, and the right result for them."""
    _seed(chance)
    B, h, T, d, e = (chance.randint(1, n) for n in (4, 4, 6, 6, 6))
    T2 = chance.randint(1, 9)
    if name in ("attention_scores", "attention"):
        lead = chance.choice([(), (B,), (B, h)])
        Q, K, V = _normal(*lead, T, d), _normal(*lead, T2, d), _normal(*lead, T2, e)
        if name == "attention":
            flat = (x.reshape(1, -1, *x.shape[-2:]) for x in (Q, K, V))
            out, weights = reference.attention(*flat)
            return (Q, K, V), (out.view(*lead, T, e), weights.view(*lead, T, T2))
        scores = (Q[..., :, None, :] * K[..., None, :, :]).sum(-1) / math.sqrt(d)
        return (Q, K), scores
    if name == "project_qkv":
        X, W = _normal(B, T, d), _normal(3 * d, d)
        rows = [(X[..., None, :] * W[i * d : (i + 1) * d]).sum(-1) for i in range(3)]
        return (X, W), tuple(rows)
    if name == "count_parameters":
        D, H, k = (chance.randint(1, 40) for _ in range(3))
        return (D, H, k), sum(1 for _ in range(4) for _ in range(D) for _ in range(H * k))
    if name in ("split_heads", "merge_heads"):
        x, y = _normal(B, T, h * d), torch.zeros(B, h, T, d, dtype=torch.float64)
        for b, i, t, c in _indices(y):
            y[b, i, t, c] = x[b, t, i * d + c]
        return ((x, h), y) if name == "split_heads" else ((y,), x)
    if name == "causal_mask":
        return (T2,), torch.tensor([[j > i for j in range(T2)] for i in range(T2)])
    if name == "padding_mask":
        lengths = [chance.randint(0, T2) for _ in range(B)]
        mask = torch.tensor([[[[j >= n for j in range(T2)]]] for n in lengths])
        return (torch.tensor(lengths), T2), mask
    if name == "masked_softmax":
        sizes = chance.choice([(1, h, T, T2), (B, 1, 1, T2), (B, h, T, T2)])
        scores, mask = _normal(B, h, T, T2), torch.rand(sizes) > chance.random()
        keys = torch.eye(T2).expand(B, h, T2, T2)  # so that the scores are the queries' own numbers
        return (scores, mask), reference.attention(scores * T2**0.5, keys, keys, mask)[1]
    if name == "sum_of_head_writes":
        heads, W = _normal(B, h, T, d), _normal(e, h * d)
        out = torch.zeros(B, T, e, dtype=torch.float64)
        for b, i, t in _indices(heads[..., 0]):
            out[b, t] += W[:, i * d : (i + 1) * d] @ heads[b, i, t]
        return (heads, W), out
    if name == "next_token_loss":
        T, V = T + 1, d + 1
        logits, tokens = _normal(B, T, V), torch.randint(0, V, (B, T))
        losses = [
            math.log(sum(math.exp(x) for x in logits[b, t])) - float(logits[b, t, tokens[b, t + 1]])
            for b in range(B)
            for t in range(T - 1)
        ]
        return (logits, tokens), torch.tensor(sum(losses) / len(losses), dtype=torch.float64)
    if name == "previous_token_score":
        weights = _normal(h, T + 1, T + 1).softmax(-1)
        means = [sum(float(w[t, t - 1]) for t in range(1, T + 1)) / T for w in weights]
        return (weights,), torch.tensor(means, dtype=torch.float64)
    if name == "count_flops":
        return (T, h * d, h), 2 * (4 * T * (h * d) ** 2 + h * (T * d * T + T * T * d))
    if name == "blockwise_attention":
        Q, K, V = 3 * _normal(T, d), 3 * _normal(T2, d), _normal(T2, e)
        out, _ = reference.attention(Q[None, None], K[None, None], V[None, None])
        return (Q, K, V, chance.randint(1, 4)), out[0, 0]
    if name == "silence":
        heads, i = _normal(B, h, T, d), chance.randrange(h)
        out = torch.stack([x if j != i else 0 * x for j, x in enumerate(heads.unbind(1))], 1)
        return (heads, i), out
    if name == "solved":
        weights = (_normal(h, T, T) * 2).round() / 4
        q, r, w = (chance.randrange(T) for _ in range(3))
        return (weights, q, r, w), torch.tensor([float(x[q, r]) > float(x[q, w]) for x in weights])
    if name == "rotate":
        x, positions = _normal(B, T, 2 * d), torch.randint(0, 50, (T,))
        out = x.clone()
        for b, t, i in _indices(x[..., :d]):
            angle = float(positions[t]) * 10_000.0 ** (-i / d)
            z = complex(x[b, t, i], x[b, t, i + d]) * complex(math.cos(angle), math.sin(angle))
            out[b, t, i], out[b, t, i + d] = z.real, z.imag
        return (x, positions), out
    if name == "grouped_scores":
        shared = h * chance.randint(1, 3)
        q, k = _normal(B, shared, T, d), _normal(B, h, T2, d)
        rows = [q[:, i] @ k[:, i // (shared // h)].mT / math.sqrt(d) for i in range(shared)]
        return (q, k), torch.stack(rows, 1)
    if name == "cached_mask":
        old, window = chance.randint(0, 6), chance.choice([None, 1, 2, 3, 5])
        rows = [
            [j > i or (window is not None and i - j >= window) for j in range(old + T)]
            for i in range(old, old + T)
        ]
        return (T, old, window), torch.tensor(rows)
    if name == "cached_attention":
        old = chance.randint(0, 4)
        q, k, v = (_normal(B, h, n, d) for n in (T, old + T, old + T))
        later = torch.tensor([[j > i for j in range(old + T)] for i in range(old, old + T)])
        cache = (k[:, :, :old], v[:, :, :old]) if old else None
        out, _ = reference.attention(q, k, v, later)
        return (q, k[:, :, old:], v[:, :, old:], cache), (out, (k, v))
    if name == "select_keys":
        lead, n_keep = chance.choice([(), (B,), (B, h)]), chance.randint(1, 7)
        scores, out = _normal(*lead, T, T), torch.ones(*lead, T, T, dtype=torch.bool)
        for *at, t in _indices(scores[..., 0]):
            row = scores[(*at, t)].tolist()[: t + 1]
            for j in sorted(range(t + 1), key=row.__getitem__)[-n_keep:]:
                out[(*at, t, j)] = False
        return (scores, n_keep), out
    if name == "cache_bytes":
        T, window, full, near, size = (chance.randint(1, 12) for _ in range(5))
        rows = [range(T)] * full + [range(max(0, T - window), T)] * near
        return (T, h, d, full, near, window, size), sum(2 * h * d * size for r in rows for _ in r)
    raise KeyError(name)


def class_case(cls: Any, chance: random.Random) -> tuple[Any, tuple[Any, ...], Tensor]:
    """A module, inputs, and the right result for the module's own four layers."""
    _seed(chance)
    B, h, T, d = (chance.randint(1, n) for n in (3, 4, 5, 4))
    module = cls(h * d, h).double()
    x = _normal(B, T, h * d)
    shape = chance.choice([(T, T), (1, T), (B, 1, 1, T), (1, h, 1, T), (B, h, T, T), (1, h, T, T)])
    mask = None if chance.random() < 0.3 else torch.rand(shape) > chance.random()
    layers = (module.w_q, module.w_k, module.w_v)
    linear = nn.functional.linear
    parts = (torch.stack(linear(x, at.weight, at.bias).split(d, -1), 1) for at in layers)
    out, _ = reference.attention(*parts, mask)
    right = linear(torch.cat(out.unbind(1), -1), module.w_o.weight, module.w_o.bias)
    return Bounded(module), (x,) if mask is None else (x, mask), right


def writer_case(cls: Any, chance: random.Random) -> tuple[Any, tuple[Any, ...], Tensor]:
    """The same of a layer that writes, in calls of some tokens each."""
    _seed(chance)
    B, h_kv, g, pairs, base = *(chance.randint(1, 3) for _ in range(4)), chance.uniform(5, 2000)
    pieces = tuple(chance.randint(1, 3) for _ in range(chance.randint(1, 3)))
    d, T = 2 * pairs, sum(pieces)
    module = cls(g * h_kv * d, g * h_kv, h_kv, base).double()
    x = _normal(B, T, g * h_kv * d)
    q, k, v = (
        torch.stack((x @ at.weight.mT).split(d, -1), 1)
        for at in (module.w_q, module.w_k, module.w_v)
    )
    for rows in (q, k):
        for b, i, t, j in _indices(rows[..., :pairs]):
            angle = t * base ** (-2 * j / d)
            z = complex(rows[b, i, t, j], rows[b, i, t, j + pairs])
            z *= complex(math.cos(angle), math.sin(angle))
            rows[b, i, t, j], rows[b, i, t, j + pairs] = z.real, z.imag
    of_head = [i // g for i in range(g * h_kv)]
    later = torch.tensor([[j > t for j in range(T)] for t in range(T)])
    out, _ = reference.attention(q, k[:, of_head], v[:, of_head], later)
    right = torch.cat(out.unbind(1), -1) @ module.w_o.weight.mT

    def call(x: Tensor) -> Tensor:
        outputs, cache = [], None
        for piece in x.split(pieces, 1):
            module(piece, cache)  # which leaves the old cache as it was
            output, cache = module(piece, cache)
            outputs.append(output)
        return torch.cat(outputs, 1)

    return Bounded(call), (x,), right


CLASSES = {"MultiHeadAttention": class_case, "WritingAttention": writer_case}


def is_wrong(name: str, answer: Any, trials: int = 25) -> bool:
    """Whether an answer is wrong somewhere on inputs that no check uses."""
    chance = random.Random(5)
    tolerance = 1e-4 if name == "WritingAttention" else 0.0  # float32 angles
    with undisturbed(), torch.no_grad():
        for i in range(trials):
            if name in CLASSES:
                call, inputs, right = CLASSES[name](answer, chance)
            else:
                call, (inputs, right) = answer, _known_cases(name, trials)[i]
            try:
                if difference(call(*map(fresh, inputs)), right, tolerance) is not None:
                    return True
            except Exception:
                return True
    return False


@cache  # for all answers to it
def _known_cases(name: str, n: int) -> list[tuple[tuple[Any, ...], Any]]:
    chance = random.Random(5)
    return [cases(name, chance) for _ in range(n)]


def fails_the_check(name: str, answer: Any) -> bool:
    """Whether it is wrong on the check's own inputs, so that it cannot pass."""
    exercise = getattr(check, name)
    with undisturbed(), torch.no_grad():
        bound = exercise.bind(answer) if exercise.bind else Bound(answer, exercise.cases)
        if not isinstance(bound, Bound):
            return True
        call = Bounded(bound.answer)
        for case in bound.cases:
            try:
                found = call(*map(fresh, case.inputs))
                if difference(found, exercise.result_on(case), case.tolerance) is not None:
                    return True
            except Exception:
                return True
    return False


def survivors(
    answers: list[Answer], share: float = 1.0, seed: int = 0
) -> Iterator[tuple[Answer, str | None]]:
    """(answer, mutant) for each that passes and is wrong; (answer, None) once an answer is done."""
    chance = random.Random(seed)
    for answer in answers:
        by_values = isinstance(getattr(check, answer.exercise), Exercise)
        if not (answer.right and by_values):
            continue
        for what, mutant in mutants(answer.function, share, chance):
            if not isinstance(mutant, (types.FunctionType, type)):
                continue
            if fails_the_check(answer.exercise, mutant):
                continue
            own = Bounded(mutant) if isinstance(mutant, types.FunctionType) else mutant
            if not is_wrong(answer.exercise, own):
                continue
            if getattr(check, answer.exercise)(mutant).passed:
                yield answer, what
        yield answer, None
