"""Exercise 12, notebook 07: predicting each token from the ones before it."""

import math
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from mha_lesson.check.exercise import WHOLE, Case, exercise
from mha_lesson.check.inputs import normal, strided


def logits_and_tokens() -> Iterator[Case]:
    for seed, (B, T, V, dtype) in enumerate(
        (
            (2, 5, 7, torch.int64),
            (1, 3, 5, torch.int64),
            (3, 2, 5, torch.int64),
            (2, 7, 3, torch.int64),
            (3, 3, 3, torch.int64),
            (1, 2, 2, torch.int64),
            (5, 7, 7, torch.int64),
        )
    ):
        generator = torch.Generator().manual_seed(seed)
        tokens = torch.randint(0, V, (B, T), generator=generator).to(dtype)
        tokens[0, -1] = tokens[-1, 0] = 0  # token 0 is an ordinary token
        logits = normal(B, T, V, seed=seed, std=2)
        kind = f"with {str(dtype).removeprefix('torch.')} tokens"
        sizes = {"B": B, "T": T, "V": V}
        yield Case((logits, tokens), sizes, kind)
        if seed == 0:
            yield Case((strided(logits), strided(tokens)), sizes, "with inputs not contiguous")
            # Sixteenths, so that an answer that computes in float32 sees the very same logits.
            wide = (logits * 2500 * 16).round() / 16
            yield Case((wide, tokens), sizes, "where logits go up to ±1e4", 1e-4, True)


def next_tokens(logits: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
    return logits[:, :-1], tokens[:, 1:]


def log_softmax_over_vocabulary(logits: Tensor) -> Tensor:
    return logits.log_softmax(-1)


def minus_the_right_one(logs: Tensor, targets: Tensor) -> Tensor:
    return -logs.gather(-1, targets.long()[..., None])[..., 0]


def mean_of_all(losses: Tensor, targets: Tensor) -> Any:
    return losses.mean()


@exercise(12, "07", cases=logits_and_tokens, gives=("loss ()",))
def next_token_loss(
    logits: Tensor,
    tokens: Tensor,
    *,
    shift: Any = next_tokens,
    normalise: Any = log_softmax_over_vocabulary,
    pick: Any = minus_the_right_one,
    reduce: Any = mean_of_all,
) -> Any:
    """Mean cross-entropy of logits[:, t] against tokens[:, t + 1]."""
    predictions, targets = shift(logits, tokens)
    return reduce(pick(normalise(predictions), targets), targets)


PAIRS = "The logits at position 0 have seen token 0 only. Which token should they predict?"


@next_token_loss.slip(
    "shift",
    "There is no shift: each position is asked to predict the token that it has just read.",
    PAIRS,
)
def no_shift(logits: Tensor, tokens: Tensor) -> Any:
    return logits, tokens


@next_token_loss.slip(
    "shift",
    "The shift goes the wrong way: each position is asked for the token *before* it.",
    PAIRS,
)
def shift_backwards(logits: Tensor, tokens: Tensor) -> Any:
    return logits[:, 1:], tokens[:, :-1]


@next_token_loss.slip(
    "shift",
    "The last position is dropped on both sides, and nothing is shifted.",
    PAIRS,
)
def last_dropped(logits: Tensor, tokens: Tensor) -> Any:
    return logits[:, :-1], tokens[:, :-1]


@next_token_loss.slip(
    "shift",
    "The first position is dropped on both sides, and nothing is shifted.",
    PAIRS,
)
def first_dropped(logits: Tensor, tokens: Tensor) -> Any:
    return logits[:, 1:], tokens[:, 1:]


@next_token_loss.slip(
    "shift",
    "The shift is by two: each position is asked for the token after the next.",
    PAIRS,
)
def shift_by_two(logits: Tensor, tokens: Tensor) -> Any:
    return logits[:, :-2], tokens[:, 2:]


@next_token_loss.slip(
    "shift",
    "The tokens are rolled round: the last position is asked to predict token 0 of its sequence.",
    "Which token follows the last one? How many predictions can be judged?",
)
def rolled(logits: Tensor, tokens: Tensor) -> Any:
    return logits, tokens.roll(-1, 1)


@next_token_loss.slip(
    "shift",
    "The tokens are rolled the wrong way round, by +1.",
    PAIRS,
)
def rolled_backwards(logits: Tensor, tokens: Tensor) -> Any:
    return logits, tokens.roll(1, 1)


@next_token_loss.slip(
    "shift",
    "All sequences are laid end to end before the shift: the last position of each is asked for "
    "the first token of the next sequence.",
    "Along which axis has the shift to happen, and is it still there after flattening?",
)
def shifted_across_sequences(logits: Tensor, tokens: Tensor) -> Any:
    return logits.reshape(-1, logits.shape[-1])[:-1], tokens.reshape(-1)[1:]


@next_token_loss.slip(
    "shift",
    "`roll` without an axis rolls all sequences as one: the last position of each is asked for the "
    "first token of the next sequence.",
    "Along which axis has the shift to happen?",
)
def rolled_flat(logits: Tensor, tokens: Tensor) -> Any:
    return logits, tokens.roll(-1)


@next_token_loss.slip(
    "shift",
    "The shift goes along the batch (axis 0): sequence 0 is asked for the tokens of sequence 1.",
    "Which axis of (B, T) runs along a sequence?",
)
def shift_along_batch(logits: Tensor, tokens: Tensor) -> Any:
    return logits[:-1], tokens[1:]


@next_token_loss.slip(
    "shift",
    "The last position is asked to predict 0: the targets are padded with token 0.",
    "Which token follows the last one? How many predictions can be judged?",
)
def padded_with_zero(logits: Tensor, tokens: Tensor) -> Any:
    return logits, torch.cat([tokens[:, 1:], torch.zeros_like(tokens[:, :1])], 1)


@next_token_loss.slip(
    "shift",
    "Only the last prediction of each sequence is judged.",
    "From how many positions is a next token known?",
)
def last_prediction_only(logits: Tensor, tokens: Tensor) -> Any:
    return logits[:, -2:-1], tokens[:, -1:]


@next_token_loss.slip(
    "shift",
    "Only the first sequence of the batch is judged.",
    "What about the other sequences?",
)
def first_sequence_only(logits: Tensor, tokens: Tensor) -> Any:
    return logits[:1, :-1], tokens[:1, 1:]


@next_token_loss.slip(
    "shift",
    "Logits are laid out by batch and position, and targets by position and batch (or the other "
    "way round): predictions meet tokens of other places.",
    "In which order does each of the two run once it is flattened?",
)
def transposed_targets(logits: Tensor, tokens: Tensor) -> Any:
    targets = tokens[:, 1:]
    return logits[:, :-1], targets.mT.reshape(targets.shape)


@next_token_loss.slip(
    "shift",
    "The logits are pressed into (B, V, T) by `view` or `reshape`: that keeps memory's order and "
    "mixes vocabulary and positions.",
    "Which call exchanges two axes instead of refilling a shape?",
)
def vocabulary_mixed(logits: Tensor, tokens: Tensor) -> Any:
    part = logits[:, :-1]
    B, T, V = part.shape
    return part.reshape(B, V, T).mT, tokens[:, 1:]


@next_token_loss.slip(
    "shift",
    "The logits are pressed into (B, V, T) by `view` or `reshape` before the shift: that mixes "
    "vocabulary and positions.",
    "Which call exchanges two axes instead of refilling a shape?",
)
def vocabulary_mixed_before(logits: Tensor, tokens: Tensor) -> Any:
    B, T, V = logits.shape
    return logits.reshape(B, V, T).mT[:, :-1], tokens[:, 1:]


@next_token_loss.slip(
    "normalise",
    "A softmax comes before the cross-entropy, which takes one itself: it is applied twice.",
    "What does `cross_entropy` expect, logits or probabilities?",
)
def softmax_twice(logits: Tensor) -> Tensor:
    return logits.softmax(-1).log_softmax(-1)


@next_token_loss.slip(
    "normalise",
    "The loss takes probabilities (a softmax) where it needs their logarithms: `nll_loss` does not "
    "take the logarithm for you.",
    "Cross-entropy is −log p. Where is the log?",
)
def probabilities(logits: Tensor) -> Tensor:
    return logits.softmax(-1)


@next_token_loss.slip(
    "normalise",
    "The loss takes the raw logits for logarithms of probabilities: no softmax has made "
    "probabilities of them.",
    "What has to happen to logits before −log p means anything?",
)
def raw_logits(logits: Tensor) -> Tensor:
    return logits


@next_token_loss.slip(
    "normalise",
    "The softmax runs over the positions, not over the vocabulary.",
    "Among what does the model choose, tokens of the vocabulary or places in the sequence?",
)
def softmax_over_positions(logits: Tensor) -> Tensor:
    return logits.log_softmax(-2)


@next_token_loss.slip(
    "normalise",
    "The softmax runs over axis 0.",
    "Among what does the model choose? Which axis is that?",
)
def softmax_over_batch(logits: Tensor) -> Tensor:
    return logits.log_softmax(0)


@next_token_loss.slip(
    "normalise",
    "`log` of a softmax, written apart: for large logits the softmax is exactly 0, and its log is "
    "−∞.",
    "Which function takes both steps at once, and safely?",
)
def log_of_softmax(logits: Tensor) -> Tensor:
    return logits.softmax(-1).log()


@next_token_loss.slip(
    "normalise",
    "`exp` of the logits as they are overflows when they are large.",
    "Which function takes exp, sum and log at once, and safely?",
)
def naive_log_softmax(logits: Tensor) -> Tensor:
    return logits - logits.exp().sum(-1, keepdim=True).log()


@next_token_loss.slip(
    "normalise",
    "`exp` of the logits as they are overflows when they are large: ∞/∞ is NaN.",
    "Which function takes exp, sum and log at once, and safely?",
)
def naive_probabilities(logits: Tensor) -> Tensor:
    return (logits.exp() / logits.exp().sum(-1, keepdim=True)).log()


@next_token_loss.slip(
    "normalise",
    "A small number is added to the probabilities before the log: for large logits the loss is cut "
    "off.",
    "Which function takes softmax and log at once, and safely?",
)
def log_of_guarded_softmax(logits: Tensor) -> Tensor:
    return (logits.softmax(-1) + 1e-9).log()


@next_token_loss.slip(
    "normalise",
    "A small number (1e-8) is added to the probabilities before the log: for large logits the loss "
    "is cut off.",
    "Which function takes softmax and log at once, and safely?",
)
def log_of_guarded_softmax_8(logits: Tensor) -> Tensor:
    return (logits.softmax(-1) + 1e-8).log()


@next_token_loss.slip(
    "normalise",
    "The logarithm is taken to the base 2: the loss is in bits, 1.44 times too large.",
    "Cross-entropy in PyTorch is in nats. Which base is that?",
)
def in_bits(logits: Tensor) -> Tensor:
    return logits.log_softmax(-1) / math.log(2)


@next_token_loss.slip(
    "normalise",
    "The logarithm is taken to the base 10.",
    "Cross-entropy in PyTorch is in nats. Which base is that?",
)
def base_ten(logits: Tensor) -> Tensor:
    return logits.log_softmax(-1) / math.log(10)


@next_token_loss.slip(
    "normalise",
    "A sigmoid judges every token of the vocabulary on its own.",
    "Which function lets them compete?",
)
def sigmoids(logits: Tensor) -> Tensor:
    return F.logsigmoid(logits)


@next_token_loss.slip(
    "pick",
    "The sign is missing: a log-probability is negative, and a loss should fall as the model "
    "improves.",
    "Cross-entropy is −log p. Where is the minus?",
)
def sign_missing(logs: Tensor, targets: Tensor) -> Tensor:
    return -minus_the_right_one(logs, targets)


@next_token_loss.slip(
    "pick",
    "The loss is taken of the model's favourite token, not of the one that came.",
    "Against which token is the prediction judged?",
)
def favourite(logs: Tensor, targets: Tensor) -> Tensor:
    return -logs.amax(-1)


@next_token_loss.slip(
    "pick",
    "The share of wrong guesses is counted: a count has no gradient, and is no cross-entropy.",
    "What does cross-entropy take of the probability of the right token?",
)
def error_rate(logs: Tensor, targets: Tensor) -> Tensor:
    return (logs.argmax(-1) != targets).to(logs.dtype)


@next_token_loss.slip(
    "pick",
    "The share of right guesses (the accuracy) is counted: it has no gradient, and is no loss.",
    "What does cross-entropy take of the probability of the right token?",
)
def accuracy(logs: Tensor, targets: Tensor) -> Tensor:
    return (logs.argmax(-1) == targets).to(logs.dtype)


@next_token_loss.slip(
    "pick",
    "The log-probabilities of *all* tokens are averaged, and the targets take no part.",
    "Whose probability counts?",
)
def all_tokens(logs: Tensor, targets: Tensor) -> Tensor:
    return -logs.mean(-1)


@next_token_loss.slip(
    "pick",
    "1 − p is taken instead of −log p.",
    "What does cross-entropy take of the probability of the right token?",
)
def one_minus_p(logs: Tensor, targets: Tensor) -> Tensor:
    return 1 - (-minus_the_right_one(logs, targets)).exp()


@next_token_loss.slip(
    "reduce",
    "The losses are added up and not averaged: the loss grows with batch and length.",
    "By how many predictions should the sum be divided?",
)
def total(losses: Tensor, targets: Tensor) -> Any:
    return losses.sum()


@next_token_loss.slip(
    "reduce",
    "The sum is divided by B only: the loss grows with the length.",
    "By how many predictions should the sum be divided?",
)
def per_sequence(losses: Tensor, targets: Tensor) -> Any:
    return losses.sum() / len(targets)


@next_token_loss.slip(
    "reduce",
    "The sum is divided by B·T, and there are only B·(T−1) predictions.",
    "How many positions have a next token?",
)
def divided_by_all(losses: Tensor, targets: Tensor) -> Any:
    return losses.sum() / (targets.shape[0] * (targets.shape[-1] + 1))


@next_token_loss.slip(
    "reduce",
    "The sum is divided by T−1 only: the loss grows with the batch.",
    "By how many predictions should the sum be divided?",
)
def per_position(losses: Tensor, targets: Tensor) -> Any:
    return losses.sum() / targets.shape[-1]


@next_token_loss.slip(
    "reduce",
    "The losses come back one by one, (B, T−1): they are not averaged.",
    "The stub promises a scalar. Which call makes one of them?",
)
def not_reduced(losses: Tensor, targets: Tensor) -> Any:
    return losses


@next_token_loss.slip(
    "reduce",
    "The losses come back one by one in one row: they are not averaged.",
    "The stub promises a scalar. Which call makes one of them?",
)
def flat_not_reduced(losses: Tensor, targets: Tensor) -> Any:
    return losses.flatten()


@next_token_loss.slip(
    "reduce",
    "One loss per sequence comes back, (B,).",
    "The stub promises a scalar. What is left to average over?",
)
def one_per_sequence(losses: Tensor, targets: Tensor) -> Any:
    return losses.mean(-1)


@next_token_loss.slip(
    "reduce",
    "One loss per position comes back, (T−1,).",
    "The stub promises a scalar. What is left to average over?",
)
def one_per_position(losses: Tensor, targets: Tensor) -> Any:
    return losses.mean(0)


@next_token_loss.slip(
    "reduce",
    "Targets with token 0 are left out as if they were padding: token 0 is an ordinary token here.",
    "Which tokens does the exercise want to be predicted?",
)
def zero_is_padding(losses: Tensor, targets: Tensor) -> Any:
    return losses[targets != 0].mean()


@next_token_loss.slip(
    "reduce",
    "Targets with token 0 count as 0 and still are divided by: token 0 is an ordinary token here.",
    "Which tokens does the exercise want to be predicted?",
)
def zero_counts_nothing(losses: Tensor, targets: Tensor) -> Any:
    return (losses * (targets != 0)).mean()


@next_token_loss.slip(
    "reduce",
    "exp of the loss comes back: that is the perplexity.",
    "Which of the two does the stub promise?",
)
def perplexity(losses: Tensor, targets: Tensor) -> Any:
    return losses.mean().exp()


@next_token_loss.slip(
    "reduce",
    "The loss is a Python number (`.item()`): nothing can be trained by it, since its gradient is "
    "cut off.",
    "On what is `backward()` called afterwards?",
)
def number_only(losses: Tensor, targets: Tensor) -> Any:
    return losses.mean().item()


@next_token_loss.slip(
    "reduce",
    "The loss comes as a tensor with one axis, (1,): a scalar has none.",
    "Which call, or which `keepdim`, leaves that axis?",
)
def one_axis_left(losses: Tensor, targets: Tensor) -> Any:
    return losses.mean().reshape(1)


@next_token_loss.slip(
    "reduce",
    "The median of the losses comes back.",
    "Which average does the stub promise?",
)
def median(losses: Tensor, targets: Tensor) -> Any:
    return losses.median()


@next_token_loss.slip(
    "reduce",
    "The largest loss comes back.",
    "Which average does the stub promise?",
)
def worst(losses: Tensor, targets: Tensor) -> Any:
    return losses.max()


@next_token_loss.slip(
    WHOLE,
    "The loss is the squared difference between logits (or probabilities) and one-hot targets: "
    "that is a regression.",
    "What does cross-entropy take of the probability of the right token?",
)
def squared_error(logits: Tensor, tokens: Tensor) -> Any:
    targets = F.one_hot(tokens[:, 1:].long(), logits.shape[-1]).to(logits.dtype)
    return F.mse_loss(logits[:, :-1].softmax(-1), targets)


@next_token_loss.slip(
    WHOLE,
    "The targets are smoothed (`label_smoothing`): the stub asks for the plain cross-entropy.",
    "Which argument of `cross_entropy` is not asked for?",
)
def smoothed(logits: Tensor, tokens: Tensor) -> Any:
    return F.cross_entropy(
        logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten().long(), label_smoothing=0.1
    )
