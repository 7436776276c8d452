"""What notebooks 07 and 10 to 13 train beforehand: `python data/make_runs.py` keeps it in `data/`.

Every run has a plan: from which weights, on which batches, for how long. `load` reads what the
plan gave; with `live=True` the model is trained now. Tables are numbers of many short runs.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from itertools import product
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from safetensors.torch import load_file
from torch import Tensor, nn

from mha_course.collection import shipped
from mha_lesson.masks import causal_mask
from mha_lesson.models import LanguageModel, RepeatModel, TwoSidesModel, Writer
from mha_lesson.progress import Progress
from mha_lesson.refusals import require_bool, require_one_of, require_positive_int, say
from mha_lesson.runtime import device
from mha_lesson.tasks import letter_batches, repeat_batches, text_batches
from mha_lesson.text import data_file, northanger_abbey
from mha_lesson.training import (
    Run,
    predict_next,
    side_accuracy,
    train,
    two_sides_loss,
    with_uniform_attention,
)


class Plan(NamedTuple):
    """How a run is made."""

    fresh: Callable[[], nn.Module]
    seed: int
    batches: Callable[..., Iterator[Tensor]]
    loss: Callable[[nn.Module, Tensor], Tensor]
    n_steps: int
    learning_rate: float
    decay: bool = True

    def start(self) -> nn.Module:
        """The model before its training, its weights drawn from the seed, on the CPU."""
        with torch.random.fork_rng(devices=[]), torch.device("cpu"):
            torch.manual_seed(self.seed)
            return self.fresh()

    def carry_out(
        self, label: str, bar: Progress | None = None, snapshot_every: int | None = None
    ) -> Run:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)  # a model may use random numbers
            return train(
                self.start().to(device),
                self.batches(seed=self.seed),
                self.loss,
                n_steps=self.n_steps,
                learning_rate=self.learning_rate,
                decay=self.decay,
                snapshot_every=snapshot_every,
                label=label,
                bar=bar,
            )


def load(name: str, *, live: bool = False, n_steps: int | None = None) -> Run:
    """A run that was trained beforehand, without snapshots.

    >>> load("two sides, h = 2, seed 1").losses[-1] < 0.001
    True

    Args:
        name: one of `PLANS`, such as "two sides, h = 2, seed 1".
        live: train it now, which takes seconds.
        n_steps: of how many steps, if live; of as many as beforehand if None.

    Raises:
        TypeError, ValueError: there is no such run.
        FileNotFoundError, ValueError: as `text.data_file`.
    """
    require_one_of("name", name, tuple(PLANS))
    require_bool("live", live)
    if n_steps is not None:
        require_positive_int("n_steps", n_steps)
        if not live:
            raise ValueError(f"n_steps must be None where live is False; got {say(n_steps)}.")
    plan = PLANS[name]
    if live:
        return plan._replace(n_steps=n_steps or plan.n_steps).carry_out(name)
    model, kept = plan.start(), _stored()
    model.load_state_dict({key: kept[f"{name}/{key}"] for key in model.state_dict()})
    return Run(model.to(device), plan.n_steps, kept[f"{name}/losses"].tolist())


def table(name: str) -> Tensor:
    """Numbers of many short runs that were trained beforehand.

    Args:
        name: one of `TABLES`, where the axes are described.

    Raises:
        TypeError, ValueError: there is no such table.
        FileNotFoundError, ValueError: as `text.data_file`.
    """
    require_one_of("name", name, tuple(TABLES))
    return _stored()[name]


def all_tensors() -> dict[str, Tensor]:
    """Everything anew, as data/make_runs.py stores it: weights as float16."""
    tensors = {name: make().contiguous() for name, make in TABLES.items()}  # as a file wants them
    for name in PLANS:
        run = load(name, live=True)
        tensors[f"{name}/losses"] = torch.tensor(run.losses)
        for key, weight in run.model.state_dict().items():
            tensors[f"{name}/{key}"] = weight.cpu().half()
    return tensors


@cache
def _stored() -> dict[str, Tensor]:
    tensors = load_file(data_file("runs.safetensors"))
    return {name: tensor.float() for name, tensor in tensors.items()}


def _train_all(plans: Sequence[Plan], what: str) -> Iterator[Run]:
    with Progress(sum(plan.n_steps for plan in plans), what) as bar:
        for plan in plans:
            yield plan.carry_out("", bar)


# ---------------------------------------------------------------- notebook 07


def _repeat(h: int, seed: int, uniform: bool = False) -> Plan:
    def fresh() -> nn.Module:
        model = RepeatModel(n_heads=h)
        return with_uniform_attention(model) if uniform else model

    return Plan(fresh, seed, repeat_batches, predict_next, 96, 3e-3, decay=False)


def _two_sides(
    h: int, seed: int, sides: tuple[int, ...] = (0, 1), n_steps: int = 600, d_model: int = 32
) -> Plan:
    fresh = partial(TwoSidesModel, h, d_model=d_model)
    return Plan(fresh, seed, letter_batches, partial(two_sides_loss, sides=sides), n_steps, 5e-3)


def _language(part: str | None = None, uniform: bool = False) -> Plan:
    """`part` is left out: its weights are zero and stay so; see notebook 07."""

    def fresh() -> nn.Module:
        model = LanguageModel(len(alphabet()))
        for parameter in getattr(model, part).parameters() if part else ():
            parameter.data.zero_()
        return with_uniform_attention(model) if uniform else model

    return Plan(fresh, 0, partial(_novel_batches, 24), predict_next, 600, 6e-3)


def _parts() -> Float[Tensor, "part seed"]:
    """Loss on unread text: whole, without one part, and with uniform shares after training."""
    windows = novel_ids()[1][: 902 * 48].view(-1, 48).to(device)
    parts = _language(), _language(uniform=True), _language("attention"), _language("feed_forward")
    plans = [plan._replace(seed=seed) for plan in parts for seed in range(3)]
    models = [run.model for run in _train_all(plans, "language models, part by part")]
    models += [with_uniform_attention(model) for model in models[:3]]
    return torch.tensor([predict_next(model, windows).item() for model in models]).view(5, 3)


class WithoutRoot(TwoSidesModel):
    """Its queries are √d_k times as long, which undoes the division by √d_k."""

    def forward(self, letters: Tensor) -> Tensor:
        B, root = len(letters), self.attention.d_k**0.5
        positions = self.position_embedding.weight
        queries, keys = (x.expand(B, -1, -1) for x in (positions * root, positions))
        gathered = self.attention(queries, keys, self.letter_embedding(letters))
        return torch.stack([self.read_left(gathered), self.read_right(gathered)], dim=2)


def _root() -> Float[Tensor, "kind d_k seed"]:
    letters = next(letter_batches(500, seed=99))
    plans = [
        _two_sides(1, seed, (0,), 200)._replace(fresh=partial(kind, 1, d_model=d_k))
        for kind, d_k, seed in product((TwoSidesModel, WithoutRoot), (16, 128), range(3))
    ]
    runs = _train_all(plans, "with and without the root")
    return torch.tensor([side_accuracy(run.model, letters).left for run in runs]).view(2, 2, 3)


# ---------------------------------------------------------------- notebook 11


@cache
def alphabet() -> str:
    """All characters of the novel, sorted."""
    return "".join(sorted(set(northanger_abbey())))


@cache
def novel_ids() -> tuple[Tensor, Tensor]:
    """The novel as numbers: nine tenths to learn from, and the last tenth, for tests."""
    ids = torch.tensor([alphabet().index(letter) for letter in northanger_abbey()])
    return ids[: len(ids) * 9 // 10], ids[len(ids) * 9 // 10 :]


def _novel_batches(n_rows: int, n_tokens: int = 48, *, seed: int) -> Iterator[Tensor]:
    return text_batches(novel_ids()[0], n_rows, n_tokens, seed=seed)


def _writer(
    h: int, h_kv: int, d_k: int, seed: int = 0, n_steps: int = 150, n_rows: int = 12
) -> Plan:
    def fresh() -> nn.Module:
        return Writer(len(alphabet()), h, h_kv, d_k=d_k)

    return Plan(fresh, seed, partial(_novel_batches, n_rows), predict_next, n_steps, 1e-2)


def _losses(kinds: tuple[tuple[int, int, int], ...], n_seeds: int) -> Float[Tensor, "kind seed"]:
    """Of (h, h_kv, d_k) each, on 300 windows of text that none has read."""
    windows = novel_ids()[1][: 300 * 48].view(-1, 48).to(device)
    plans = [_writer(*kind, seed) for kind in kinds for seed in range(n_seeds)]
    runs = _train_all(plans, f"{len(plans)} writers")
    losses = [predict_next(run.model, windows).item() for run in runs]
    return torch.tensor(losses).view(len(kinds), n_seeds)


# ---------------------------------------------------------------- notebooks 10 and 13


BASES = (None, 100.0, 10_000.0)  # of the rotation; None: without positions
LEARNED = (64, 256)  # characters of a window


def _with_base(base: float | None, n_tokens: int, seed: int) -> Plan:
    def fresh() -> nn.Module:
        model = Writer(len(alphabet()))
        model.attention.rope_base = base
        return model

    batches = partial(_novel_batches, 768 // n_tokens, n_tokens)  # as many characters each
    return Plan(fresh, seed, batches, predict_next, 300, 1e-2)


def _train_writers(plans: Sequence[Plan], what: str) -> list[Writer]:
    return [run.model for run in _train_all(plans, what) if isinstance(run.model, Writer)]


def _unseen_places(seeds: Sequence[int] = range(3)) -> Float[Tensor, "base kind seed quarter"]:
    """Loss on 60 windows of 256 that none has read, in quarters."""
    windows = novel_ids()[1][: 60 * 256].view(60, 256).to(device)

    @torch.no_grad()
    def quarters(model: nn.Module) -> Tensor:
        losses = F.cross_entropy(model(windows)[:, :-1].mT, windows[:, 1:], reduction="none")
        return torch.stack([part.mean() for part in losses.mean(dim=0).split(64)]).cpu()

    plans = [_with_base(*kind) for kind in product(BASES, LEARNED, seeds)]
    models = _train_writers(plans, "writers of short and of long windows")
    losses = torch.stack([quarters(model) for model in models]).view(3, 2, len(seeds), 4)
    for model in models:
        model.attention.window = 64
    near = torch.stack([quarters(model) for model in models]).view(3, 2, len(seeds), 4)
    return torch.cat((losses, near[:, :1]), dim=1)


class Normed(nn.Module):
    """Queries, keys and values of a projection, the first two normed head by head."""

    def __init__(self, w_qkv: nn.Module, n_heads: int, d_k: int) -> None:
        super().__init__()
        self.w_qkv, self.n_heads = w_qkv, n_heads
        self.norms = nn.ModuleList(nn.RMSNorm(d_k) for _ in range(2))

    def forward(self, x: Tensor) -> Float[Tensor, "B T d_out"]:
        q, k, v = self.w_qkv(x).unflatten(-1, (3, self.n_heads, -1)).unbind(-3)
        return torch.stack((self.norms[0](q), self.norms[1](k), v), dim=-3).flatten(-3)


NORM_RATES = (3e-3, 1e-2, 3e-2, 1e-1, 3e-1)  # learning rates


def _with_norms(normed: bool) -> Writer:
    model = Writer(len(alphabet()))
    layer = model.attention
    if normed:
        layer.add_module("w_qkv", Normed(layer.w_qkv, layer.n_heads, layer.d_k))
    return model


def _norms(seeds: Sequence[int] = range(10)) -> Float[Tensor, "figure kind rate seed"]:
    windows = novel_ids()[1][: 300 * 48].view(-1, 48).to(device)

    @torch.no_grad()
    def figures(model: Writer) -> tuple[float, float]:
        x = model.norms[0](model.embedding(windows))
        last = model.attention(x, return_weights=True)[1][:, :, -1]
        return predict_next(model, windows).item(), last.amax(dim=-1).mean().item()

    plans = [
        _writer(4, 4, 12, seed)._replace(fresh=partial(_with_norms, normed), learning_rate=rate)
        for normed, rate, seed in product((False, True), NORM_RATES, seeds)
    ]
    writers = _train_writers(plans, "with and without norms of q and k")
    found = torch.tensor([figures(writer) for writer in writers])
    return found.T.reshape(2, 2, len(NORM_RATES), len(seeds))


# ---------------------------------------------------------------- notebook 12

# With one causal mask, and scores as training makes them, these compute what is right.
RIGHT_HERE = ("fill_too_high", "mask_tiled", "mask_of_the_first")
UNTRAINED = (
    "weights_scaled",
    "scale_times_half_d_k",
    "heads_never_split",
    "one_layer_for_all",
    "w_k_for_values",
    "dropout_on_scores",
)
TRAINED = (
    "right",
    *(
        name
        for name, bug in shipped.bugs().items()
        if bug.base == "Attention" and name not in RIGHT_HERE + UNTRAINED
    ),
)
CONTEXTS = (11, 23, 35, 47)  # characters before an honest prediction
ON_THE_WAY = ("right", "scale_d_model", "softmax_over_queries", "softmax_over_heads")
RATES = (2e-3, 6e-3, 1.2e-2)  # learning rates
CURVE_STEP = 30  # steps between two points of a curve


class Masked(nn.Module):
    """A class of `shipped`, called as `LanguageModel` calls its attention."""

    def __init__(self, attention: nn.Module) -> None:
        super().__init__()
        self.attention = attention

    def forward(self, x: Tensor, *, causal: bool) -> Tensor:
        return self.attention(x, causal_mask(x.shape[1], x.device) if causal else None)


def with_mistake(name: str, *, glorot: bool = False) -> Callable[[], nn.Module]:
    """Makes the language model with a mistake of `shipped` in its attention, or "right".

    All start from the same weights for the same seed: from `nn.Linear`'s draw, or from Glorot's
    for each matrix, with biases of 0.
    """

    def fresh() -> nn.Module:
        model = LanguageModel(len(alphabet()))
        sizes = model.attention.d_model, model.attention.n_heads
        start = shipped.right()(*sizes)
        for parameter in start.parameters() if glorot else ():
            fill = nn.init.xavier_uniform_ if parameter.dim() == 2 else nn.init.zeros_
            fill(parameter)
        cls = shipped.right() if name == "right" else shipped.bug(name).build
        model.add_module("attention", Masked(shipped.with_same_weights(cls, start, *sizes)))
        return model

    return fresh


@torch.no_grad()
def reported_and_honest(model: nn.Module, n_batches: int = 20) -> tuple[float, float]:
    """The loss on unread text, in nats a character, as training reports it and honestly.

    Args:
        model: a language model, (B, T) ids → (B, T, V) scores.
        n_batches: of 24 windows of 48 characters.

    Returns:
        Reported: of all 47 predictions of a window that is read as a whole. Honest: of one next
        character at a time, without anything behind it, mean of four context lengths.
    """
    batches = novel_ids()[1][: n_batches * 24 * 48].view(n_batches, 24, 48).to(device)
    model.eval()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)  # one mistake leaves dropout on
        reported = sum(predict_next(model, windows).item() for windows in batches)
        honest = sum(
            F.cross_entropy(model(windows[:, :n])[:, -1], windows[:, n]).item()
            for windows in batches
            for n in CONTEXTS
        )
    model.train()
    return reported / n_batches, honest / n_batches / len(CONTEXTS)


def _with(name: str, seed: int = 0, *, glorot: bool = False) -> Plan:
    return _language()._replace(fresh=with_mistake(name, glorot=glorot), seed=seed)


def fates(
    names: Sequence[str] = TRAINED, seeds: Sequence[int] = range(5), *, glorot: bool = False
) -> Float[Tensor, "name 3 seed"]:
    """Losses reported, honest, and of training's last 50 batches; ten seconds for each model."""
    plans = [_with(name, seed, glorot=glorot) for name in names for seed in seeds]
    runs = _train_all(plans, f"{len(plans)} language models")
    ends = [(*reported_and_honest(run.model), sum(run.losses[-50:]) / 50) for run in runs]
    return torch.tensor(ends).view(len(names), len(seeds), 3).mT


def _starts() -> Float[Tensor, "draw rate seed"]:
    plans = [
        _with("right", seed, glorot=glorot)._replace(learning_rate=rate)
        for glorot, rate, seed in product((False, True), RATES, range(3))
    ]
    runs = _train_all(plans, "two draws at three rates")
    return torch.tensor([reported_and_honest(run.model)[0] for run in runs]).view(2, 3, 3)


def _curves() -> Float[Tensor, "name 2 point"]:
    runs = [_with(name).carry_out(name, snapshot_every=CURVE_STEP) for name in ON_THE_WAY]
    points = [[reported_and_honest(run.at(step), 5) for step in run.snapshots] for run in runs]
    return torch.tensor(points).mT


# ---------------------------------------------------------------- all of them

PLANS: dict[str, Plan] = {
    **{f"repeat, h = {h}, seed {s}": _repeat(h, s) for h in (4, 8) for s in range(3)},
    **{f"repeat, uniform, seed {s}": _repeat(4, s, uniform=True) for s in range(3)},
    **{
        f"two sides, h = {h}, seed {s}": _two_sides(h, s)
        for h, seeds in {1: (1, 2, 7), 2: (1, 2, 7), 4: (1,), 8: (1, 2)}.items()
        for s in seeds
    },
    "two sides, only left": _two_sides(1, 0, (0,), 300),
    "two sides, only right": _two_sides(1, 0, (1,), 300),
    "two sides, twice the width": _two_sides(1, 0, d_model=64),
    "language, whole": _language(),
    "language, uniform attention": _language(uniform=True),
    "language, no attention": _language("attention"),
    "language, no feed-forward": _language("feed_forward"),
    "writer": _writer(4, 4, 12, n_steps=300, n_rows=24),
    **{f"shipped, {name}": _with(name) for name in ("right", "softmax_over_queries")},
}
TABLES: dict[str, Callable[[], Tensor]] = {
    # left letters right: (with the root, without), d_k = 16 and 128, seeds 0 to 2
    "root": _root,
    # loss: whole, uniform, no attention, no feed-forward, swapped in, seeds 0 to 2
    "language, parts": _parts,
    # loss: (h, h_kv) = (4, 4), (4, 2), (4, 1), (1, 1) at d_k = 12, seeds 0 to 2
    "shared keys": partial(_losses, ((4, 4, 12), (4, 2, 12), (4, 1, 12), (1, 1, 12)), 3),
    # loss: h = 1, 2, 4, 8, 12 with d_k = 48 / h, seeds 0 and 1
    "number of heads": partial(_losses, tuple((h, h, 48 // h) for h in (1, 2, 4, 8, 12)), 2),
    # loss: without places, base 100, base 10,000; learned from windows of 64, of 256, and of 64
    # with a window of 64 afterwards; seeds 0 to 2; at places 0 to 63, to 127, to 191, to 254
    "unseen places": _unseen_places,
    # loss, and the last row's largest weight: without norms of q and k and with them;
    # `NORM_RATES`; seeds 0 to 9
    "normed queries and keys": _norms,
    # loss, reported, honest and in training, of `TRAINED`, seeds 0 to 4
    "fates": fates,
    # the same from Glorot's draw of the weights, seeds 0 and 1; and of two, seeds 0 to 4
    "fates, Glorot's draw": partial(fates, seeds=range(2), glorot=True),
    "two fates, Glorot's draw": partial(fates, ON_THE_WAY[:2], glorot=True),
    # loss, reported, of the right class: from nn.Linear's draw and Glorot's, `RATES`, seeds 0 to 2
    "two draws": _starts,
    # loss, reported and honest, of `ON_THE_WAY`, every 30 steps, seed 0
    "fates on the way": _curves,
}
