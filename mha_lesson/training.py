"""One training loop for all models of the course, and measures of the models it has trained.

What does not fit is refused with a TypeError or ValueError that names it.
"""

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from mha_lesson import refusals
from mha_lesson.models import TwoSidesModel, attentions_of
from mha_lesson.progress import Progress
from mha_lesson.refusals import MOST, describe, say
from mha_lesson.runtime import device
from mha_lesson.tasks import both_sides, letter_batches

# ---------------------------------------------------------------- the loop


@dataclass
class Run:
    """What a training run leaves.

    Attributes:
        model: the trained model.
        n_steps: how many steps were planned.
        losses: the loss of every step that was made.
        snapshots: step → the weights after that many steps, on the CPU; see `at`.
    """

    model: nn.Module
    n_steps: int
    losses: list[float] = field(default_factory=list)
    snapshots: dict[int, dict[str, Tensor]] = field(default_factory=dict)

    @property
    def finished(self) -> bool:
        """False where somebody stopped the run early."""
        return len(self.losses) == self.n_steps

    def at(self, step: int) -> nn.Module:
        """A copy of the model as it was after `step` steps, if a snapshot was taken there."""
        if not (refusals.is_whole(step, 0, MOST) and step in self.snapshots):
            raise ValueError(f"step must be one of {sorted(self.snapshots)}; got {say(step)}.")
        model = copy.deepcopy(self.model)
        model.load_state_dict(self.snapshots[step])
        return model


def train(
    model: nn.Module,
    batches: Iterable[Tensor],
    loss: Callable[[nn.Module, Tensor], Tensor],
    *,
    n_steps: int,
    learning_rate: float,
    decay: bool = True,
    snapshot_every: int | None = None,
    label: str = "training",
    bar: Progress | None = None,
) -> Run:
    """Learns from n_steps batches with Adam.

    Interrupt it (■ in Jupyter, Ctrl-C in a terminal) and the run so far is returned.

    Args:
        model: trained in place, on the device where it is.
        batches: at least n_steps of them, on any device.
        loss: `loss(model, batch)`, a scalar to make small.
        n_steps, learning_rate: how many batches to learn from; the first step's rate.
        decay: let the learning rate fall in a straight line to zero, or keep it.
        snapshot_every: keep the weights every so many steps, the first and last included.
        label: stands in front of the progress bar.
        bar: a running bar to advance, where this is one of several runs.
    """
    where = _device_of(model)
    refusals.require_callable("loss", loss)
    refusals.require_positive_int("n_steps", n_steps)
    refusals.require_positive("learning_rate", learning_rate)
    refusals.require_bool("decay", decay)
    if snapshot_every is not None:
        refusals.require_positive_int("snapshot_every", snapshot_every)
    if bar is not None:
        refusals.require_kind("bar", bar, Progress)
    adam = torch.optim.Adam(model.parameters(), fused=True)  # one kernel for all parameters
    run = Run(model, n_steps)
    shown = Progress(n_steps, label) if bar is None else nullcontext(bar)
    with suppress(KeyboardInterrupt), shown as bar:
        for step, batch in _steps(batches, n_steps):
            if snapshot_every and step % snapshot_every == 0:
                run.snapshots[step] = _weights(model)
            adam.param_groups[0]["lr"] = float(learning_rate) * (1 - step / n_steps if decay else 1)
            value = loss(model, batch.to(where))
            if not isinstance(value, Tensor) or value.numel() != 1 or not value.requires_grad:
                raise TypeError(
                    "loss must give a scalar tensor that depends on the model; "
                    f"got {describe(value)}."
                )
            adam.zero_grad()
            value.backward()
            adam.step()
            run.losses.append(value.item())
            bar.advance(f"loss {run.losses[-1]:.2f}")
    if not run.finished:
        print(f"Stopped after {len(run.losses)} of {n_steps} steps; the run so far is kept.")
    if snapshot_every:
        run.snapshots[len(run.losses)] = _weights(model)
    return run


def _weights(model: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.detach().cpu().clone() for name, tensor in model.state_dict().items()}


def _device_of(model: nn.Module) -> torch.device:
    refusals.require_kind("model", model, nn.Module)
    for parameter in model.parameters():
        return parameter.device
    raise ValueError(f"model must have parameters; got a {type(model).__name__} without any.")


def _steps(batches: Iterable[Tensor], n_steps: int) -> Iterator[tuple[int, Tensor]]:
    """The number of each step, and its batch."""
    try:
        first = islice(batches, n_steps)
    except TypeError:
        raise TypeError(f"batches must be a list or iterator; got {describe(batches)}.") from None
    step = 0
    for step, batch in enumerate(first, start=1):
        refusals.require_kind("batches, each of them,", batch, Tensor)
        yield step - 1, batch
    if step < n_steps:
        raise ValueError(f"batches must last for {n_steps} steps; they end after {step}.")


# ---------------------------------------------------------------- predicting the next token


def next_token_loss(
    logits: Float[Tensor, "B T V"], tokens: Int[Tensor, "B T"]
) -> Float[Tensor, ""]:
    """Mean cross-entropy, in nats, of predicting every token from the positions before it.

    The logits (B, T, V) at position i are about token i + 1; T is at least 2.
    """
    refusals.require_floats("logits", logits, "(B, T, V)")
    refusals.require_axes("logits", logits, 3, "(B, T, V)")
    refusals.require_ids("tokens", tokens, 2, "(B, T)", logits.shape[-1])
    if logits.shape[:2] != tokens.shape or tokens.shape[1] < 2:
        raise ValueError(
            f"logits and tokens must share B and T, T of at least 2; "
            f"got {describe(logits)} and {describe(tokens)}."
        )
    predictions, answers = logits[:, :-1], tokens[:, 1:]
    return F.cross_entropy(predictions.flatten(0, 1), answers.flatten().long())


def predict_next(model: nn.Module, tokens: Int[Tensor, "B T"]) -> Float[Tensor, ""]:
    """`next_token_loss` of a model, as `train` wants it."""
    refusals.require_kind("model", model, nn.Module)
    return next_token_loss(model(tokens), tokens)


# ---------------------------------------------------------------- two sides


def two_sides_loss(
    model: nn.Module, letters: Int[Tensor, "B T"], sides: Sequence[int] = (0, 1)
) -> Float[Tensor, ""]:
    """Mean cross-entropy of naming the neighbours of every inner position.

    Of a `TwoSidesModel`; `sides` says which are asked for: 0 the left one, 1 the right one.
    """
    sides = refusals.listed_ints("sides", sides, 0, 1)
    refusals.require_positive_int("the number of sides", len(sides))
    answers = both_sides(letters)  # (B, T - 2, 2)
    scores = _scores(model, letters)  # (B, T - 2, 2, n_letters)
    if sides != [0, 1]:  # to pick both takes a tenth of a step's time
        answers, scores = answers[..., sides], scores[:, :, sides]
    return F.cross_entropy(scores.flatten(0, 2), answers.flatten().long())


def _scores(model: nn.Module, letters: Tensor) -> Float[Tensor, "B inner 2 n_letters"]:
    """What a `TwoSidesModel` says about the neighbours of the inner positions."""
    refusals.require_kind("model", model, nn.Module)
    scores = model(letters)
    fits = isinstance(scores, Tensor) and scores.shape[:-1] == (*letters.shape, 2)
    if not fits or scores.shape[-1] == 0:
        raise ValueError(f"model must give scores (B, T, 2, n_letters); got {describe(scores)}.")
    refusals.require_floats("the scores that model gives", scores, "(B, T, 2, n_letters)")
    refusals.require_ids("letters", letters, 2, "(B, T)", scores.shape[-1])
    return scores[:, 1:-1]


def two_sides_runs(
    n_heads: int, seeds: Iterable[int], *, n_steps: int = 600, snapshot_every: int | None = None
) -> list[Run]:
    """Trains a `TwoSidesModel` from each seed: weights and letters are both drawn from it.

    A `Run` for each seed; fewer where somebody interrupted, and then finished ones only.
    """
    seeds, runs = refusals.listed_ints("seeds", seeds, 0, 2**63 - 1), []
    refusals.require_positive_int("the number of seeds", len(seeds))
    refusals.require_sizes(n_heads=n_heads, n_steps=n_steps)
    label = f"h = {n_heads}" + (f", {len(seeds)} seeds" if len(seeds) > 1 else "")
    how: Any = {"n_steps": n_steps, "learning_rate": 5e-3, "snapshot_every": snapshot_every}
    with Progress(len(seeds) * int(n_steps), label) as bar:
        for seed in seeds:
            with torch.random.fork_rng(devices=[]), torch.device("cpu"):
                torch.manual_seed(seed)
                model = TwoSidesModel(n_heads)
            model, batches = model.to(device), letter_batches(seed=seed)
            run = train(model, batches, two_sides_loss, **how, bar=bar)
            if not run.finished:
                break
            runs.append(run)
    return runs


class SideAccuracy(NamedTuple):
    """Shares of right answers: of the left letters, the right letters, and both at once.

    `both` counts only positions whose two neighbours differ: elsewhere one answer is the other.
    """

    left: float
    right: float
    both: float


@torch.no_grad()
def side_accuracy(model: nn.Module, letters: Int[Tensor, "B T"]) -> SideAccuracy:
    """How often a `TwoSidesModel` names the neighbours of the inner positions."""
    answers = both_sides(letters).to(_device_of(model))
    right = _scores(model, letters.to(answers.device)).argmax(dim=-1) == answers  # (B, T - 2, 2)
    differ = answers[..., 0] != answers[..., 1]
    return SideAccuracy(
        left=right[..., 0].float().mean().item(),
        right=right[..., 1].float().mean().item(),
        both=right.all(dim=-1)[differ].float().mean().item(),
    )


# ---------------------------------------------------------------- what heads contribute


def with_uniform_attention(model: nn.Module) -> nn.Module:
    """A copy whose heads look at every open token alike, and still do after more training.

    With W^Q, W^K and their biases at zero every score is zero, and the softmax shares equally
    among all keys that are not blocked. The gradient of each has the other as a factor, so that
    both stay zero. Nothing else changes.
    """
    refusals.require_kind("model", model, nn.Module)
    for attention in attentions_of(model):
        _require_plain("w_qkv", attention.w_qkv)
    model = copy.deepcopy(model)
    for attention in attentions_of(model):
        width = 2 * attention.n_heads * attention.d_k
        for parameter in attention.w_qkv.parameters():  # rows q, then k, then v
            parameter.data[:width] = 0
    return model


def silence_head(model: nn.Module, head: int, *, layer: int = 0) -> nn.Module:
    """A copy in which one head, from 0 to h − 1, writes nothing: its slab of W^O is zero.

    `layer` says of which MultiHeadAttention, counted from 0 in the order of the model.
    """
    refusals.require_kind("model", model, nn.Module)
    attentions = attentions_of(model)
    if not attentions:
        raise ValueError("model must have a MultiHeadAttention in it; it has none.")
    refusals.require_whole("layer", layer, 0, len(attentions) - 1)
    attention = attentions[layer]
    refusals.require_whole("head", head, 0, attention.n_heads - 1)
    _require_plain("w_o", attention.w_o)
    model = copy.deepcopy(model)
    slab = slice(head * attention.d_k, (head + 1) * attention.d_k)
    attentions_of(model)[layer].w_o.weight.data[:, slab] = 0  # (d_model, h*d_k)
    return model


def weight_by_offset(
    weights: Float[Tensor, "*batch T T"], offsets: Sequence[int]
) -> Float[Tensor, "*batch n_offsets"]:
    """How much a query gives, on average, to the key so many positions away.

    Offset −1 is the token just before, 0 itself, 1 the one after. The mean is over those queries
    for which every offset lies in the sequence.
    """
    refusals.require_floats("weights", weights, "(..., T, T)")
    offsets = refusals.listed_ints("offsets", offsets)
    T = weights.shape[-1] if weights.ndim else 0
    first, last = -min([0, *offsets]), T - max([0, *offsets])
    if not offsets or weights.ndim < 2 or weights.shape[-2] != T or first >= last:
        raise ValueError(
            f"weights must be (..., T, T) with T large enough for the offsets {say(offsets)}, of "
            f"which there must be one; got {describe(weights)}."
        )
    queries = torch.arange(first, last, device=weights.device)
    means = [weights[..., queries, queries + offset].mean(dim=-1) for offset in offsets]
    return torch.stack(means, dim=-1)


def _require_plain(name: str, layer: nn.Linear) -> None:
    """A pruned or parametrised weight is made anew from others: what is written into it is lost."""
    made_of = sorted(parameter for parameter, _ in layer.named_parameters())
    if not {"weight", "bias"}.issuperset(made_of):
        raise ValueError(
            f"model must hold the weight and bias of its {name} as parameters, neither pruned nor "
            f"parametrised; got one with {', '.join(made_of)}."
        )
