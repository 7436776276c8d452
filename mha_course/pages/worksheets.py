"""Writes worksheets for paper: a sheet for each notebook, with numbers to compute by hand, and a
second file with the numbers filled in. Another --seed gives other numbers.
"""

import argparse
import inspect
import math
import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jinja2 import Environment, FileSystemLoader
from markupsafe import Markup
from torch import Tensor

from mha_course import check
from mha_course.base.disk import write_whole
from mha_course.base.notebook import paths
from mha_course.base.numerals import number
from mha_course.base.prose import prose
from mha_course.collection.bank import Question, bank
from mha_course.collection.cost import FLOAT_BYTES, flops
from mha_course.pages.formulas import rendered
from mha_lesson import (
    MultiHeadAttention,
    causal_mask,
    heads,
    merge_heads,
    padding_mask,
    scaled_dot_product_attention,
    split_heads,
)
from mha_lesson.attention import attention_weights


class Table(NamedTuple):
    """A table of a task: printed, or empty boxes that the key fills."""

    name: str
    rows: list[list[str]]
    wanted: bool


Task = Callable[..., Iterator[Table]]
TASKS: dict[str, tuple[Task, dict[str, Sequence[Any]]]] = {}


class Sheet(NamedTuple):
    title: str
    asks: str
    tables: list[Table]
    questions: list[Question]


def sheet(notebook: str, **draws: Sequence[Any]) -> Callable[[Task], Task]:
    """A task: its docstring asks, `draws` are the choices for each of its numbers."""

    def kept(task: Task) -> Task:
        TASKS[notebook] = task, draws
        return task

    return kept


def given(tables: dict[str, Tensor]) -> Iterator[Table]:
    return (Table(name, _written(x, None), wanted=False) for name, x in tables.items())


def wanted(name: str, x: Tensor | str | int, decimals: int | None = None) -> Table:
    if isinstance(x, Tensor):
        return Table(name, _written(x, decimals), wanted=True)
    return Table(name, [[x if isinstance(x, str) else f"{x:,}"]], wanted=True)


def _written(x: Tensor, decimals: int | None) -> list[list[str]]:
    if x.dtype == torch.bool:
        return [["×" if blocked else "·" for blocked in row] for row in x.tolist()]
    rows = torch.atleast_2d(x).tolist()
    return [[number(round(value, 9), decimals) for value in row] for row in rows]


def ints(*shape: int, low: int = -1, high: int = 2) -> Tensor:
    return torch.randint(low, high + 1, shape).double()


@sheet("00")
def mixtures() -> Iterator[Table]:
    """Three tokens. Each row of weights says how much a token takes from each of the three.
    Compute what comes out: for each token, the weighted sum of the rows of V.
    """
    quarters = torch.tensor([[2, 2, 0], [0, 2, 2], [2, 1, 1], [1, 1, 2]]).double()
    weights, values = quarters[torch.randperm(4)[:3]] / 4, 4 * ints(3, 2, low=0, high=3)
    yield from given({"weights": weights, "V": values})
    yield wanted("out", weights @ values)


@sheet("01")
def weights_by_hand() -> Iterator[Table]:
    """Two queries, three keys, d_k = 4. Compute the scores Q Kᵀ / √d_k, then each row's softmax to
    two digits. You need: e to the power 0, ½, 1, 1½, 2 is 1, 1.65, 2.72, 4.48, 7.39.
    """
    q, k = ints(2, 4, low=0, high=1), ints(3, 4, low=0, high=1)
    yield from given({"Q": q, "K": k})
    yield wanted("scores", check.attention_scores.right(q, k))
    yield wanted("weights", attention_weights(q, k, None), 2)


@sheet("02")
def projections() -> Iterator[Table]:
    """Three tokens of four numbers, and the matrices of two projections. Compute queries and keys:
    each row of a matrix makes one number of a query, or of a key, as a dot product with the
    token.
    """
    x, w_q, w_k = ints(3, 4), ints(2, 4, high=1), ints(2, 4, high=1)
    yield from given({"x": x, "W^Q": w_q, "W^K": w_k})
    yield wanted("queries", F.linear(x, w_q))
    yield wanted("keys", F.linear(x, w_k))


@sheet("03", h=(2, 3), first=range(1, 9))
def heads_of_a_strip(h: int, first: int) -> Iterator[Table]:
    """Three tokens, d_model = 6, h = {h}. Write down what each head gets, and then what head 0
    would get from the wrong `x.view(1, h, T, d_k)`.
    """
    x = torch.arange(first, first + 18).double().view(1, 3, 6)
    yield from given({"x": x[0]})
    for i, head in enumerate(split_heads(x, h)[0]):
        yield wanted(f"head {i}", head)
    yield wanted("head 0, wrong", x.view(h, 3, 6 // h)[0])


@sheet("04", length=(2, 3, 4))
def masked_rows(length: int) -> Iterator[Table]:
    """Five places: the first {length} hold tokens, the rest is padding. The mask is causal, too.
    Mark what is blocked with ×. Then all scores are equal: which weights come out, to two
    digits?
    """
    mask = causal_mask(5) | padding_mask([length], 5)[0, 0]
    yield wanted("blocked", mask)
    yield wanted("weights", attention_weights(torch.zeros(5, 1), torch.zeros(5, 1), mask), 2)


@sheet("05")
def writes() -> Iterator[Table]:
    """Two heads, two tokens, d_k = 2, and the first two rows of W^O. Put the heads side by side.
    Compute what each head writes with its own half of W^O, and the sum of both.
    """
    x, w_o = ints(1, 2, 2, 2, low=0), ints(2, 4)
    yield from given({"head 0": x[0, 0], "head 1": x[0, 1], "rows of W^O": w_o})
    yield wanted("side by side", merge_heads(x)[0])
    for i, slab in enumerate(w_o.chunk(2, dim=1)):
        yield wanted(f"head {i} writes", x[0, i] @ slab.T)
    yield wanted("both", F.linear(merge_heads(x)[0], w_o))


@sheet("06", B=(2, 3), T=(5, 7), h=(3, 4), d_k=(8, 16))
def shapes(B: int, T: int, h: int, d_k: int) -> Iterator[Table]:
    """B = {B}, T = {T}, h = {h}, d_k = {d_k}. Write the shape of each tensor in the class, and how
    many parameters its four layers hold, biases included.
    """
    module, x = MultiHeadAttention(h * d_k, h), torch.zeros(B, T, h * d_k)
    q = split_heads(x, h)
    context, weights = scaled_dot_product_attention(q, q, q, return_weights=True)
    steps = {
        "projected": x,
        "split": q,
        "weights": weights,
        "context": context,
        "merged": merge_heads(context),
        "output": module(x),
    }
    for name, result in steps.items():
        yield wanted(name, str(tuple(result.shape)))
    yield wanted("parameters", sum(p.numel() for p in module.parameters()))


@sheet("07", text=("abcd", "badc", "cadb", "dacb"))
def next_letters(text: str) -> Iterator[Table]:
    """A model reads these eight letters and says the next one at each place. Write what it is
    given, and the answer that each place is compared with. Which loss has a model that gives
    each of 26 letters the same probability? (ln 2 = .69, ln 13 = 2.56.)
    """
    yield Table("text", [[*text * 2]], wanted=False)
    yield Table("given", [[*(text * 2)[:-1]]], wanted=True)
    yield Table("answers", [[*(text * 2)[1:]]], wanted=True)
    even, letters = torch.zeros(1, 8, 26), torch.zeros(1, 8, dtype=torch.long)
    yield wanted("loss", check.next_token_loss.right(even, letters), 2)


@sheet("08")
def scores_of_a_head() -> Iterator[Table]:
    """The weights of a head that cannot see the future. Compute its score for the previous token,
    the mean of the four weights one place below the diagonal, and how much the tokens after the
    first give to the first, on average.
    """
    counts = [torch.randint(0, i + 1, (4,)).bincount(minlength=5) for i in range(5)]
    weights = torch.stack(counts).double() / 4
    yield from given({"weights": weights})
    yield wanted("previous token", heads.previous_token(weights), 4)
    yield wanted("first token", heads.parking(weights), 4)


@sheet("09", T=(512, 1024), d_model=(256, 512), h=(4, 8))
def operations(T: int, d_model: int, h: int) -> Iterator[Table]:
    """T = {T}, d_model = {d_model}, h = {h}. Count the operations of the four projections and of
    both products (a multiplication and an addition are 2), and the bytes of all scores in
    float32.
    """
    for name, n in flops(T, d_model, h).items():
        yield wanted(name, n)
    yield wanted("bytes of all scores", FLOAT_BYTES * h * T * T)


@sheet("10")
def turns() -> Iterator[Table]:
    """One vector stands at the places 0, 1, 2 and 3, and each place turns it by a quarter turn
    more, (a, b) → (−b, a). Write the four vectors, and all dot products of two of them. What do
    equal dot products have in common?
    """
    x = ints(1, 2, low=1, high=3).expand(4, 2)
    turned = check.rotate.right(x, torch.arange(4) * (math.pi / 2))
    yield from given({"vector": x[0]})
    yield wanted("turned", turned)
    yield wanted("dot products", turned @ turned.T)


@sheet("11", read=(3, 4), window=(4, 5), h=(4, 8))
def steps_with_a_cache(read: int, window: int, h: int) -> Iterator[Table]:
    """{read} tokens are read, and four more follow one by one. The window is {window} wide; {h}
    heads share two heads of keys and values, d_k = 64, two bytes a number. For each of the four
    steps: how many keys does the new token see, its own among them, how many scores are made,
    and how many bytes hold these keys and values?
    """
    seen = [(~check.cached_mask.right(1, read + i, window)).sum() for i in range(4)]
    rows = torch.stack(seen).double()
    yield wanted("keys", rows)
    yield wanted("scores", h * rows)
    yield wanted("bytes", 2 * 2 * 64 * 2 * rows)


@sheet("12", right=("A", "B"))
def two_softmaxes(right: str) -> Iterator[Table]:
    """Two people ran the same scores through a softmax, one of them along the wrong axis. For A
    and for B: in the first line, what the three rows add up to, in the second the three
    columns, to one digit. Which one is right, if rows are queries?
    """
    scores = ints(3, 3, low=0)
    for name in "AB":
        weights = scores.softmax(dim=-1 if name == right else -2)
        yield from given({name: (100 * weights).round() / 100})
        yield wanted(f"sums of {name}", torch.stack((weights.sum(-1), weights.sum(-2))), 1)
    yield wanted("right is", right)


@sheet("13", n_local=(10, 20), window=(512, 1024), h_kv=(1, 4))
def caches(n_local: int, window: int, h_kv: int) -> Iterator[Table]:
    """Five layers see everything and {n_local} see a window of {window}. The number of heads of
    keys and values is {h_kv}, d_k = 128, two bytes a number. How many bytes does the cache
    hold?
    """
    for n in (500, 10_000):
        size = check.cache_bytes.right(n, h_kv, 128, 5, n_local, window, 2)
        yield wanted(f"after {n:,} tokens", size)


@sheet("14")
def next_pieces() -> Iterator[Table]:
    """A model scores four pieces as the next one. Below stands e to the power of each score.
    Write each piece's share, to two digits, at temperature 1 and at 1/2, where every score is
    doubled, and so every power squared. Which piece, counted from 0, comes at temperature 0?
    """
    powers = (torch.randperm(6)[:4] + 1).double()
    yield from given({"e to the score": powers})
    yield wanted("at temperature 1", powers / powers.sum(), 2)
    yield wanted("at temperature 1/2", powers**2 / (powers**2).sum(), 2)
    yield wanted("at temperature 0", int(powers.argmax()))


def sheets(seed: int) -> Iterator[Sheet]:
    """One for each notebook: its task, and a question of each kind from the bank."""
    for book, path in paths().items():
        task, draws = TASKS[book]
        random.seed(f"{seed} {book}")
        drawn = {name: random.choice(choices) for name, choices in draws.items()}
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(random.randrange(2**31))
            tables = [*task(**drawn)]
        own = [q for q in bank().values() if q.notebook == book]
        kinds = [[q for q in own if q.kind == kind] for kind in ("number", "choose", "say")]
        title = path.stem[3:].replace("_", " ").capitalize()
        asks = (inspect.getdoc(task) or "").format(**drawn)
        yield Sheet(
            f"{book} {title}", asks, tables, [random.choice(some) for some in kinds if some]
        )


def templates(folder: Path) -> Environment:
    """The templates of a folder; what is put into them is escaped, whoever wrote it."""
    environment: Any = Environment(
        loader=FileSystemLoader(folder),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["prose"] = lambda text: Markup(prose(text))
    environment.filters["markdown"] = lambda text: Markup(rendered(text))
    return environment


def page(template: str, **given: Any) -> str:
    """Sheets in one file, by a template: each on a page of its own, with the answers in a key."""
    return templates(Path(__file__).with_name("templates")).get_template(template).render(**given)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="mha-lesson worksheets", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("worksheets"), help="a folder")
    parser.add_argument("--seed", type=int, default=0, help="another one, other numbers")
    options = parser.parse_args(arguments)
    if options.out.is_file():
        parser.error(f"--out takes a folder; got {options.out}.")
    drawn = [*sheets(options.seed)]
    options.out.mkdir(parents=True, exist_ok=True)
    for name, key in (("worksheets.html", False), ("key.html", True)):
        text = page("worksheets.html.j2", sheets=drawn, seed=options.seed, key=key)
        write_whole(options.out / name, text.encode("utf-8"))
        print(options.out / name)
