"""What a check compares, and what it says: limits, relations, pictures, errors, plain sentences."""

import math
import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from importlib import import_module
from itertools import product
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from einops import EinopsError, rearrange
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from mha_course.engine.compare import (
    TOLERANCE,
    allowed,
    close,
    close_cells,
    difference,
    letters_of_all,
    same,
)
from mha_course.engine.errors import BY_KIND, ERRORS, explain
from mha_course.engine.families import orders_of_results
from mha_course.engine.judge import judge
from mha_course.engine.problem import Case, Problem
from mha_course.engine.relations import relate, relate_numbers
from mha_course.engine.report import MAX_CELLS, Finding, Picture, Report, number, picture
from mha_course.engine.safely import Raised
from sentences import is_a_sentence

TOY = partial(Problem, number=0, notebook="00")


def random(*shape: int) -> Tensor:
    """Numbers from 0.1 to 1.1, in float64."""
    return torch.rand(*shape, dtype=torch.float64) + 0.1


def text_of(html: str) -> ElementTree.Element:
    """Parses strictly: every tag closed, every quote in its place."""
    return ElementTree.fromstring(f"<div>{html}</div>")


def declarations(style: str) -> dict[str, str]:
    """What a style attribute declares."""
    return dict(declared.split(":") for declared in style.removesuffix(";").split(";"))


# --- comparing -----------------------------------------------------------------------------------

STEPS = st.sampled_from([0.0, 0.5, 0.9, 1.1, 1.5, 1.9, 2.1, 50.0])
SPECIAL = [math.inf, -math.inf, math.nan]
NUMBERS = st.floats(-1e3, 1e3) | st.sampled_from([0.0, *SPECIAL])
CELLS = st.lists(st.tuples(NUMBERS, STEPS, st.sampled_from([1, -1])), min_size=1, max_size=6)


@given(cells=CELLS, tolerance=st.sampled_from([1e-6, 1e-3, 1e-2]))
def test_close_is_relative_to_each_number_and_to_the_largest(cells, tolerance) -> None:
    right = np.array([x for x, _, _ in cells])
    largest = max(1.0, np.abs(right[np.isfinite(right)]).max(initial=0.0))
    limit = tolerance * (largest + np.abs(np.where(np.isfinite(right), right, 0.0)))
    yours = right + limit * [step * sign for _, step, sign in cells]
    inside = np.array([step < 1 for _, step, _ in cells]) | ~np.isfinite(right)
    a, b = torch.from_numpy(yours), torch.from_numpy(right)
    assert close_cells(a, b, tolerance).tolist() == inside.tolist()
    assert close(a, b, tolerance) == inside.all()


@pytest.mark.parametrize(("yours", "right"), [*product([*SPECIAL, 1.0], repeat=2)])
def test_nan_is_like_nan_and_infinity_like_infinity(yours: float, right: float) -> None:
    a, b = torch.tensor([yours, 2.0]), torch.tensor([right, 2.0])
    assert close(a, b, 0.1) == close_cells(a, b, 0.1).all() == (str(yours) == str(right))


SLACK = [
    (torch.float64, 1e-6, 1e-5),
    (torch.float32, 1e-5, 2e-4),
    (torch.float16, 5e-3, 0.05),
    (torch.bfloat16, 0.02, 0.25),
]


@pytest.mark.parametrize(("dtype", "passes", "fails"), SLACK)
def test_each_dtype_may_be_off_by_its_rounding_and_not_by_ten_times_as_much(
    dtype: torch.dtype, passes: float, fails: float
) -> None:
    x = torch.ones(3, 5, dtype=torch.float64)
    assert difference((x + passes).to(dtype), x.to(dtype)) is None
    assert difference((x + fails).to(dtype), x.to(dtype))


def test_bools_and_empty_tensors_are_compared_exactly() -> None:
    mask = torch.tensor([True, False, True])
    assert close(mask, mask.clone(), 9.0) and not close(mask, ~mask, 9.0)
    assert close_cells(mask, mask.roll(1), 9.0).tolist() == [True, False, False]
    assert close(torch.empty(0, 3), torch.empty(0, 3), 0.1)
    assert close_cells(torch.empty(0, 3), torch.empty(0, 3), 0.1).shape == (0, 3)


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_a_case_may_allow_more_than_the_dtype_never_less(dtype: torch.dtype) -> None:
    usual = TOLERANCE[dtype]
    assert allowed(dtype) == allowed(dtype, usual / 2) == usual
    assert allowed(dtype, 2 * usual) == 2 * usual and allowed(torch.int64, 0.5) == 0.5
    assert allowed(torch.int64) == 0
    expected = torch.ones(3, dtype=torch.float64)
    yours = expected + 3 * TOLERANCE[torch.float64]
    assert difference(yours, expected) and not difference(yours, expected, 1e-4)
    both = (yours, yours), (expected, expected)
    assert difference(*both) and not difference(*both, 1e-4)
    assert not same(yours, expected) and same(yours, expected, 1e-4)
    assert not same([yours], (expected,)) and same([yours], (expected,), 1e-4)


DIFFERENCES: list[tuple[Callable[[Tensor], Any], str]] = [
    (lambda x: x.tolist(), "type"),
    (lambda x: x.numpy(), "type"),
    (lambda x: x.to_sparse(), "type"),
    (lambda x: x.cfloat(), "type"),
    (lambda x: x.to("meta"), "type"),
    (lambda x: torch.quantize_per_tensor(x.float(), 0.1, 0, torch.qint8), "type"),
    (lambda x: torch.nested.nested_tensor(list(x)), "type"),
    (lambda x: x[1:], "shape"),
    (lambda x: x.float(), "dtype"),
    (lambda x: x.index_fill(0, torch.tensor([1]), math.nan), "nan"),
    (lambda x: x + 1, "values"),
]


@pytest.mark.parametrize("part", [0, 1])
@pytest.mark.parametrize(("change", "kind"), DIFFERENCES)
def test_the_first_difference_is_found_with_its_part(change: Any, kind: str, part: int) -> None:
    expected = random(3, 5), random(2, 7)
    yours = [change(x) if i == part else x.clone() for i, x in enumerate(expected)]
    assert difference(list(expected), expected) is None
    for found, where in (
        (difference(yours, expected), part),
        (difference(yours[part], expected[part]), 0),
    ):
        assert found is not None and (found.kind, found.part) == (kind, where)
        assert found.yours is yours[part] and found.expected is expected[part]
    explains = same(yours, expected), same(yours[part], expected[part])
    assert explains == (kind == "dtype",) * 2  # a slip may give another float width


def test_the_number_of_results_and_whole_numbers_are_compared() -> None:
    x = random(3)
    pairs: list[tuple[Any, Any, str | None]] = [
        (x, (x, x), "type"),
        ((x,), (x, x), "count"),
        ((x, x, x), (x, x), "count"),
        (torch.tensor(3), 3, "type"),
        (3.0, 3, "type"),
        (True, 1, "type"),
        (4, 3, "values"),
        (np.int64(3), 3, "type"),
    ]
    for yours, expected, kind in pairs:
        found = difference(yours, expected)
        assert (found.kind if found else None) == kind
        if found:
            assert found.yours is yours and found.expected is expected


def test_a_slip_explains_only_the_same_kind_of_thing() -> None:
    x, mask, whole = random(3), torch.tensor([True, False]), torch.tensor([1, 0])
    alike: list[tuple[Any, Any]] = [
        (x.float(), x),
        (whole.int(), whole),
        ([x, 3], (x, 3)),
        (0.1 * (1 + 1e-6), 0.1),
        ("a", "a"),
    ]
    apart: list[tuple[Any, Any]] = [
        (whole, mask),
        (mask, whole),
        (whole, whole.double()),
        (whole.double(), whole),
        ([x], (x, x)),
        (x, (x,)),
        ((x, x + 1), (x, x)),
        (x[:2], x),
        (3.0, 3),
        (3, 3.0),
        (True, 1),
        ("a", "b"),
        (0.1 + 1e-3, 0.1),
        (np.float64(0.1), 0.1),
        (None, x),
    ]
    assert [pair for pair in alike if not same(*pair)] == []
    assert [pair for pair in apart if same(*pair)] == []


def test_shapes_are_written_in_letters() -> None:
    sizes = {"B": 2, "T": 7, "d_k": 5, "one": 1}
    shapes = ((), (7,), (2, 7, 1), (35, 49), (6, 11), (14, 10))
    words = [letters_of_all([(shape, sizes)]) for shape in shapes]
    assert words == ["()", "(T,)", "(B, T, 1)", "(T·d_k, T²)", "(T−1, 11)", "(B·T, B·d_k)"]


def test_a_letter_is_said_only_if_it_is_true_of_every_input() -> None:
    first = ((6,), {"B": 2, "T": 3, "d": 7})  # 2 · 3, or 7 − 1
    assert letters_of_all([first]) == "(d−1,)"
    assert letters_of_all([first, ((35,), {"B": 5, "T": 7, "d": 11})]) == "(B·T,)"
    assert letters_of_all([first, ((8,), {"B": 5, "T": 7, "d": 13})]) == "(6,)"


LENGTHS = {
    "T+1": (14, 18),
    "B·d": (58, 111),
    "d²": (841, 1369),
    "2·T": (26, 34),
    "3·d": (87, 111),
    "B+T": (15, 20),
    "d/h": (29, 37),
    "h/B": (1, 4),
    "B·T·d": (754, 1887),
}


@pytest.mark.parametrize("term", LENGTHS)
def test_every_term_of_sizes_is_found_where_two_inputs_have_it(term: str) -> None:
    sizes = {"B": 2, "T": 13, "d": 29}, {"B": 3, "T": 17, "d": 37}
    if "/" in term:  # which are whole
        sizes = {"B": 4, "h": 4, "d": 116}, {"B": 3, "h": 12, "d": 444}
    lengths = zip(LENGTHS[term], sizes, strict=True)
    assert letters_of_all([((n,), own) for n, own in lengths]) == f"({term},)"


# --- relations -----------------------------------------------------------------------------------

POWERS = {1: "d", -1: "1/d", 0.5: "√d", -0.5: "1/√d", 2: "d²", -2: "1/d²"}


@pytest.mark.parametrize("power", POWERS)
@pytest.mark.parametrize("share", [1, 2, 0.5])
@pytest.mark.parametrize("sign", [1, -1])
def test_a_factor_is_named_letters_of_all(power: float, share: float, sign: int) -> None:
    ratios = {d: sign * share * d**power for d in (7, 11)}
    x = random(3, 5)
    finding = relate([(x * ratio, x, {"T": 3, "d": d, "B": 1}) for d, ratio in ratios.items()])
    word = "−" * (sign < 0) + {1: "", 2: "2·", 0.5: "½·"}[share] + POWERS[power]
    assert finding is not None and finding.key == "relation:factor"
    assert f" {word} times" in finding.does
    for off in (1 - 1e-2, 1 + 1e-3):
        near = relate(
            [(x * ratio * off, x, {"T": 3, "d": d, "B": 1}) for d, ratio in ratios.items()]
        )
        assert near is not None and POWERS[power] not in near.does


THIRD = torch.arange(5)[:, None] == 2
RELATED: list[tuple[Callable[[Tensor], Tensor], str, str]] = [
    (lambda e: e * 0.3, "factor", "0.3 times"),
    (lambda e: e * 2, "factor", "2 times"),
    (lambda e: -e, "factor", "-1 times"),
    (lambda e: e * (1 + 1e-3), "factor", "1.001 times"),
    (lambda e: e / (e.sum(-1, keepdim=True) + 1), "row_factors", "a factor of its own."),
    (lambda e: e.flatten().roll(3).view_as(e), "shuffled", "in the wrong places"),
    (
        lambda e: e.index_fill(0, torch.tensor([3]), 9.0),
        "partly_right",
        "everything is right except",
    ),
    (lambda e: e.index_fill(1, torch.tensor([2]), 9.0), "partly_right", "except position 2."),
    (lambda e: torch.where(THIRD, e, e + e**2), "partly_right", "axis -2 only position 2 is"),
    (lambda e: e.flatten().view(7, 5), "same_memory", "in a different shape"),
    (lambda e: e.flatten().roll(3), "same_memory", "in the wrong places"),
    (lambda e: e.mT, "moved_axes", "the wrong order: axis 1, axis 0."),
    (lambda e: e[:, 3], "a_slice", "only position 3 along axis -1."),
    (lambda e: e[0], "a_slice", "only position 0 along axis -2."),
    (lambda e: e[:, -1], "a_slice", "only position 6 along axis -1."),
    (lambda e: e[:, :-1], "a_slice", "The last position along axis -1 is missing."),
    (lambda e: e[1:], "a_slice", "The first position along axis -2 is missing."),
]


@pytest.mark.parametrize(("change", "key", "words"), RELATED)
def test_a_relation_is_said_of_one_input_and_of_many(change: Any, key: str, words: str) -> None:
    samples = [(change(x), x, {"T": 5}) for x in (random(5, 7), random(5, 7))]
    learning = [(yours.requires_grad_(), x, sizes) for yours, x, sizes in samples]
    for some in (samples[:1], samples, learning):
        finding = relate(some)
        assert finding is not None and finding.key == f"relation:{key}"
        assert words in finding.does and is_a_sentence(finding.does)
    nearly = relate(
        [(yours + 1e-4 * random(*yours.shape), x, sizes) for yours, x, sizes in samples]
    )
    assert nearly is None or nearly.key != finding.key


def test_only_what_is_true_of_every_input_is_said() -> None:
    x, y = random(5, 7), random(5, 7)
    pairs: list[tuple[Tensor, Tensor, str | None]] = [
        (x * 2, y * 3, "the same factor"),
        (x.flip(0), y.roll(1, 0), "order"),
        (torch.where(THIRD, 9, x), torch.where(THIRD, 8, y), "except position 2."),
        (x**3, y**3, None),
    ]
    for first, second, words in pairs:
        finding = relate([(first, x, {}), (second, y, {})])
        if words is None:
            assert finding is None
        else:
            assert finding is not None and words in finding.does and is_a_sentence(finding.does)


def test_the_last_position_is_named_where_lengths_differ() -> None:
    samples = []
    for T in (3, 5):
        x = random(T, 7)
        last = torch.arange(T)[:, None] == T - 1
        samples.append((x, torch.where(last, x + x**2, x), torch.where(last, x, x + x**2)))
    wrong_last = relate([(yours, x, {}) for x, yours, _ in samples])
    right_last = relate([(yours, x, {}) for x, _, yours in samples])
    assert wrong_last is not None and right_last is not None
    assert wrong_last.does == "Along axis -2 everything is right except the last position."
    assert right_last.does == "Along axis -2 only the last position is right."
    x, y = random(5, 7), random(5, 7)
    some = relate(
        [(a.index_fill(0, torch.tensor(i), 9), a, {}) for a, i in ((x, [0, 2]), (y, [1, 3]))]
    )
    assert some is not None
    assert some.does == "Along axis -2 some positions are right and others are not."


@pytest.mark.parametrize(("off", "said"), [(1e-2, True), (5e-2, False)])
def test_near_is_what_two_digits_are(off: float, said: bool) -> None:
    x = random(5, 7) + 1
    finding = relate([(x * (1 + off * random(5, 7).cos()), x, {})])
    assert (finding is not None and finding.key == "relation:near") is said


def test_relations_of_masks() -> None:
    mask = torch.rand(5, 7) > 0.5
    moved = relate([(mask.flatten().roll(3).view_as(mask), mask, {})])
    assert moved is None or moved.key != "relation:shuffled"  # true of any mask with as many True
    row = relate([(torch.where(THIRD, ~mask, mask), mask, {})])
    assert row is not None and row.key == "relation:partly_right"
    for some in ((mask[1:], mask), (mask.double()[1:], mask), (mask[1:], mask.double())):
        rest = relate([(*some, {})])
        assert rest is not None and rest.key == "relation:a_slice"


def test_the_smallest_results_are_related_too() -> None:
    two, sizes = torch.tensor([1.0, 5.0]), {"B": 1, "d": 2}
    for yours, words in (
        (two * 2**0.5, "is √d times"),
        (two * 2, "is d times"),
        (two * 3, "is 3 times"),
        (two * 4, "is 2·d times"),
    ):
        finding = relate([(yours, two, sizes)])
        assert finding is not None and words in finding.does
    same_factor = relate([(two * 2, two, {}), (two * 3, two, {})])
    assert same_factor is not None and "the same factor" in same_factor.does
    assert relate([(torch.tensor([3.0]), torch.tensor([0.0]), sizes)]) is None
    assert relate([(torch.tensor([math.inf, -math.inf]), torch.tensor([1.0, -2.0]), {})]) is None
    x, y = random(2, 7), random(1, 7)
    rest = relate([(x[1:], x, {})])
    assert rest is not None and rest.does == "The first position along axis -2 is missing."
    assert relate([(y[1:], y, {})]) is None
    four = torch.tensor([1.0, 2.0, 3.0, 5.0])
    mixed = relate([(four[[1, 0, 3, 2]], four, {})])
    assert mixed is not None and mixed.key == "relation:shuffled"


def test_a_wrong_row_is_named_wherever_in_the_row_it_is_wrong() -> None:
    samples = []
    for column in (3, 4):
        x = random(5, 7)
        cell = THIRD & (torch.arange(7) == column)
        samples.append((torch.where(cell, 9, x), x, {}))
    finding = relate(samples)
    assert finding is not None
    assert finding.does == "Along axis -2 everything is right except position 2."


@pytest.mark.parametrize("odd", [math.inf, math.nan])
def test_nothing_is_related_to_what_is_not_finite(odd: float) -> None:
    x = random(3, 5)
    assert relate([(torch.where(x > 0.5, odd, x + x**2), x, {})]) is None


def test_a_single_number_has_a_factor_and_little_else() -> None:
    finding = relate([(torch.tensor(6.0), torch.tensor(2.0), {"d": 9})])
    assert finding is not None and "√d times" in finding.does
    assert relate([(torch.tensor(0.0), torch.tensor(2.0), {})]) is None
    assert relate([(torch.tensor(3.0), torch.tensor(0.0), {})]) is None
    two = [(torch.tensor(6.0), torch.tensor(2.0), {}), (torch.tensor(8.0), torch.tensor(2.0), {})]
    assert relate(two) is None


SIZES = [{"T": 5, "d": 7}, {"T": 3, "d": 11}, {"T": 2, "d": 13}]
TERMS: list[tuple[Callable[[int, int], int], str]] = [
    (lambda T, d: 1, "1"),
    (lambda T, d: -6, "-6"),
    (lambda T, d: T, "T"),
    (lambda T, d: 2 * d, "2·d"),
    (lambda T, d: -3 * T * d, "-3·T·d"),
    (lambda T, d: T * T, "T²"),
    (lambda T, d: 4 * d**3, "4·d³"),
    (lambda T, d: T * T * d * d, "T²·d²"),
    (lambda T, d: T * d**3, "T·d³"),
]


@pytest.mark.parametrize(("gap", "words"), TERMS)
def test_a_count_that_is_off_by_one_term(gap: Any, words: str) -> None:
    rows = [(10**6 + T + gap(T, s["d"]), 10**6 + T, s) for s in SIZES for T in [s["T"]]]
    finding = relate_numbers(rows)
    assert finding is not None and finding.key == "relation:gap"
    amount = words.removeprefix("-")
    side = "few" if words[0] == "-" else "many"
    assert finding.does == f"That is {amount} too {side}, on every input."


def test_the_simplest_term_is_said_halves_too() -> None:
    half = relate_numbers([(10**6 + n + n // 2, 10**6 + n, {"n": n}) for n in (2, 4, 10)])
    assert half is not None and half.does == "That is 0.5·n too many, on every input."
    squares = [(10**6 + T + T * T, 10**6 + T, {"d": T * T, "T": T}) for T in (2, 3, 5)]
    simple = relate_numbers(squares)
    assert simple is not None and simple.does == "That is d too many, on every input."


@pytest.mark.parametrize("share", [0.25, 2, 3])
def test_a_count_that_is_a_share_of_the_right_one(share: float) -> None:
    finding = relate_numbers([(int(share * 4 * n), 4 * n, {"n": n}) for n in (2, 5, 11)])
    assert finding is not None and finding.key == "relation:factor"
    assert f" {number(share)} times" in finding.does


def test_counts_without_a_relation() -> None:
    terms = [(s["T"], s["d"]) for s in SIZES]
    gaps = ((3, 8, 1), [d**4 for _, d in terms], [T**2 * d**3 for T, d in terms])
    for off in gaps:
        right = [10**6 + s["d"] for s in SIZES]
        rows = [(n + gap, n, s) for n, gap, s in zip(right, off, SIZES, strict=True)]
        assert relate_numbers(rows) is None
    assert relate_numbers([(n, n, {"n": n}) for n in (2, 3, 5)]) is None
    assert relate_numbers([(10**6 + n + n // 3, 10**6 + n, {"n": n}) for n in (3, 6, 12)]) is None
    nothing = relate_numbers([(0, n, {"n": n}) for n in (2, 3, 5)])
    assert nothing is not None and nothing.does == "That is n too few, on every input."


# --- numbers and pictures ------------------------------------------------------------------------


@given(st.floats(-1e9, 1e9))
def test_a_number_has_four_digits_and_no_negative_zero(x: float) -> None:
    said = number(x)
    assert said == "0" if abs(x) < 1e-4 else math.isclose(float(said), x, rel_tol=6e-4)
    assert len(re.sub(r"e.*|\D", "", said).strip("0")) <= 4
    assert said != "-0" and number(1e-4) == "0.0001" and number(-0.0) == "0"
    assert number(math.nan) == "nan" and number(-math.inf) == "-inf"


@given(
    shape=st.lists(st.sampled_from([1, 2, 3, 7, 8, 9, 13]), max_size=4),
    places=st.lists(st.floats(0, 1, exclude_max=True), max_size=3),
    mask=st.booleans(),
)
def test_a_picture_shows_a_slice_where_the_two_differ(shape, places, mask) -> None:
    n = math.prod(shape)
    expected, differs = torch.arange(float(n)), torch.zeros(n, dtype=torch.bool)
    for place in places:
        differs[int(place * n)] = True
    expected = (expected % 3 == 0) if mask else expected
    yours = (expected ^ differs) if mask else expected + n * differs
    expected, yours, differs = (t.reshape(shape) for t in (expected, yours, differs))
    shown = picture(yours, expected, differs, "scores")

    where = re.fullmatch(r"scores((?:\[\d+\])*)(, a part of it)?:", shown.title)
    assert where is not None
    index = tuple(int(i) for i in re.findall(r"\d+", where[1]))
    assert len(index) == max(0, len(shape) - 2)
    table, other, marks = (
        t[index].reshape(1, -1) if t[index].ndim < 2 else t[index]
        for t in (expected, yours, differs)
    )
    rows, columns = len(shown.expected), len(shown.expected[0])
    assert rows <= MAX_CELLS and columns <= MAX_CELLS
    assert (where[2] is None) == ((rows, columns) == table.shape)
    assert marks.any() == bool(places)
    assert any(map(any, shown.differs)) == bool(places)
    assert [
        [a != b for a, b in zip(*r, strict=True)]
        for r in zip(shown.expected, shown.yours, strict=True)
    ] == (shown.differs)
    words = [
        ["■" if x else "·" for x in r] if mask else [number(x) for x in r] for r in table.tolist()
    ]
    corners = product(range(len(words) - rows + 1), range(len(words[0]) - columns + 1))
    assert any(
        [row[left : left + columns] for row in words[top : top + rows]] == shown.expected
        for top, left in corners
    )
    assert shown.legend == ("■ True, · False" if mask else "") and other.shape == table.shape


def test_a_window_has_the_difference_near_its_middle() -> None:
    expected = torch.arange(400.0).view(20, 20)
    for row, column in ((11, 13), (19, 0), (2, 19), (9, 9)):
        differs = torch.zeros(20, 20).bool()
        differs[row, column] = True
        shown = picture(expected + 1000 * differs, expected, differs, "")
        top, left = (int(x) for x in divmod(float(shown.expected[0][0]), 20))
        assert (top, left) == (max(0, row - 3), max(0, column - 3))
        assert len(shown.expected) == min(row + 5, 20) - top
        assert len(shown.expected[0]) == min(column + 5, 20) - left


PICTURES = [
    picture(random(3, 5), random(3, 5), torch.rand(3, 5) > 0.5, "weights <b>"),
    picture(torch.rand(5, 3) > 0.5, torch.rand(5, 3) > 0.5, torch.rand(5, 3) > 0.5, "mask"),
    picture(torch.arange(4) * 1000, torch.arange(4), torch.tensor([False, True, True, True]), "x"),
]


@pytest.mark.parametrize("shown", PICTURES, ids=lambda p: p.title)
def test_a_picture_in_text_can_be_read_back(shown: Picture) -> None:
    title, head, *rows = str(shown).splitlines()
    assert title == shown.title and head.split() == ["expected", "yours", "(*", "differs)"]
    n = len(shown.expected)
    assert rows[n:] == [shown.legend] * bool(shown.legend)
    middle = head.index("yours")
    for line, expected, yours, differs in zip(
        rows[:n], shown.expected, shown.yours, shown.differs, strict=True
    ):
        assert line[:middle].split() == expected
        assert line[middle:].split() == [y + "*" * d for y, d in zip(yours, differs, strict=True)]
        assert (
            line == line.rstrip() and line.startswith("  ") and line[middle - 3 : middle] == "   "
        )
    ends = [{m.end() for m in re.finditer(r"\S+", line[:middle])} for line in rows[:n]]
    assert all(end == ends[0] for end in ends)  # columns aligned at the right


@pytest.mark.parametrize("shown", PICTURES, ids=lambda p: p.title)
def test_a_picture_in_html_says_the_same(shown: Picture) -> None:
    root = text_of(shown._repr_html_())
    tables = root.findall(".//table")
    cells = [[list(row) for row in table.iter("tr")] for table in tables]
    texts = [[[cell.text for cell in row] for row in table] for table in cells]
    assert texts == [shown.expected, shown.yours]
    styles = [[[cell.get("style") or "" for cell in row] for row in table] for table in cells]
    for table, differs in zip(styles, ([[False] * 99] * 99, shown.differs), strict=True):
        for row, marks in zip(table, differs, strict=False):
            for style, marked in zip(row, marks, strict=False):
                has = declarations(style)
                assert has["border"] == f"2px solid {'#D55E00' if marked else 'transparent'}"
                assert has.get("font-weight") == ("bold" if marked else None)
                assert has["text-align"] == "right"
    assert all(element.text or len(element) for element in root.iter())  # nothing empty
    heads = [table.findtext("caption") for table in tables]
    assert heads == ["expected", "yours (differing cells framed)"]
    said = [shown.title, *heads, *(c for t in texts for row in t for c in row), shown.legend]
    assert sorted(filter(None, said)) == sorted(root.itertext())


# --- reports -------------------------------------------------------------------------------------


FINDINGS = (
    Finding("a", "It says `x < y` here.", "Why is *no mask* needed?"),
    Finding("b", "It returns `None`, and 2 * 3 * 4 is no emphasis.", ""),
    Finding("c", "A lone ` stays & is escaped.", "Which?"),
)
REPORTS = [
    Report("f", None),
    Report("f", True, checked=7, notes=("A note.",)),
    Report("f", False),
    *(Report("f<T>", False, (f,), ("A note.",), None, "It shows on T = 5.") for f in FINDINGS),
    Report("f", False, FINDINGS, ("A note.",), PICTURES[0], "It shows on T = 5."),
]


@pytest.mark.parametrize("report", REPORTS, ids=lambda r: f"{r.passed}-{','.join(r.slips)}")
def test_a_report_says_the_same_in_text_and_in_html(report: Report) -> None:
    picture_of_it = [str(report.picture)] if report.picture else []
    head, *lines = str(report).removesuffix("".join(picture_of_it)).strip().splitlines()
    verdicts = {True: "right", False: "not right yet", None: "not attempted yet"}
    assert repr(report) == str(report) and head == f"{report.name}: {verdicts[report.passed]}."
    assert all(str(report).endswith(p) for p in picture_of_it)

    box = text_of(report._repr_html_())[0]
    sign, title = (box.findtext("strong") or "").split(" ", 1)
    assert sign == {True: "✓", False: "✗", None: "○"}[report.passed]
    colour = {True: "#009E73", False: "#D55E00", None: "#999999"}[report.passed]
    assert title + "." == head and box.get("role") == "status"
    assert declarations(box.get("style", ""))["border-left"] == f"4px solid {colour}"
    said = ["".join(p.itertext()) for p in box.findall("p")]
    assert said == [_without_marks(line) for line in lines]
    code = [c.text for p in box.findall("p") for c in p.findall("code")]
    marked = [c for line in lines if line.count("`") % 2 == 0 for c in re.findall("`(.*?)`", line)]
    assert code == marked
    emphasised = [e.text for p in box.findall("p") for e in p.findall("em")]
    assert emphasised == ["no mask"] * ("*no mask*" in str(report))
    assert len(box.findall(".//table")) == 2 * bool(report.picture)
    beside = "".join(text_of(report.picture._repr_html_()).itertext()) if report.picture else ""
    assert "".join(box.itertext()) == f"{sign} {title}" + "".join(said) + beside


def _without_marks(line: str) -> str:
    return (line if line.count("`") % 2 else line.replace("`", "")).replace("*no mask*", "no mask")


def test_a_report_lists_what_there_is_in_order() -> None:
    several = str(REPORTS[-1]).splitlines()
    assert several[1:5] == [
        "Several things at once:",
        *(f"{i}. {f.does} {f.asks}".strip() for i, f in enumerate(FINDINGS, 1)),
    ]
    assert several[5:7] == ["Some of it shows on T = 5.", "A note."]
    one = str(REPORTS[3]).splitlines()
    assert one[1:] == [FINDINGS[0].does, "It shows on T = 5.", FINDINGS[0].asks, "A note."]
    assert str(REPORTS[1]).splitlines()[1:] == [
        "It gives what it should on all 7 inputs tried.",
        "A note.",
    ]
    assert REPORTS[-1].slips == ("a", "b", "c") and len(str(REPORTS[2]).splitlines()) == 1


# --- errors --------------------------------------------------------------------------------------

_x, _mask = torch.ones(2, 3), torch.ones(2, 3).bool()
STOPS: dict[str, Callable[[], Any]] = {
    "fixed_device": lambda: torch.empty(2, device="meta").numpy(),
    "error:written_over": lambda: _x.clone().requires_grad_().exp().mul_(2).sum().backward(),
    "error:numpy_lacks_dtype": lambda: _x.bfloat16().numpy(),
    "error:numpy_transpose": lambda: _x.transpose(0, 2, 1, 3),  # type: ignore[call-arg]
    "error:three_dots": lambda: _x + ...,  # type: ignore[operator]
    "error:none_used": lambda: None @ _x,  # type: ignore[operator]
    "error:module_not_started": lambda: setattr(nn.Module.__new__(nn.Module), "w", nn.Linear(1, 1)),
    "error:view_needs_contiguous": lambda: _x.T.view(6),
    "error:shape_for_view": lambda: _x.view(5),
    "error:matrix_shapes": lambda: _x @ _x,
    "error:einsum_letters": lambda: torch.einsum("ij,jk->ik", _x, _x),
    "error:float_mask_overflow": lambda: _x.half().masked_fill(_mask, -1e9),
    "error:mask_not_bool": lambda: _x.masked_fill(_x, 0.0),
    "error:dtype_mix": lambda: _x @ _x.double().T,
    "error:broadcast_shapes": lambda: _x + torch.ones(2, 5),
    "error:index_out_of_range": lambda: _x[7],
    "error:axes_to_name": lambda: _x.permute(0, 1, 2),
    "error:axis_out_of_range": lambda: _x.sum(7),
    "error:unpacking": lambda: (lambda a, b, c: None)(*_take_apart(_x.shape)),
    "error:one_for_scalar": lambda: float(_x),
    "error:truth_of_a_tensor": lambda: bool(_x > 0),
    "error:bmm_axes": lambda: torch.bmm(_x, _x),
    "error:arguments_swapped": lambda: _x.masked_fill(0.0, _mask),  # type: ignore[call-overload]
    "error:method_not_called": lambda: _x.T @ _x.sum,  # type: ignore[operator]
    "error:module_called": lambda: math(2),  # type: ignore[operator]
    "error:not_callable": lambda: _x(3),  # type: ignore[operator]
    "error:integer_needed": lambda: torch.ones(2.0),  # type: ignore[call-overload]
    "error:no_index": lambda: _x[{}],  # type: ignore[index]
    "error:target_dtype": lambda: _x[torch.ones(2)],
    "error:loss_counts": lambda: F.cross_entropy(torch.ones(2, 3), torch.ones(5).long()),
    "error:cat_axes": lambda: torch.cat((_x, torch.ones(3, 4))),
    "error:loss_axes": lambda: F.cross_entropy(torch.ones(2, 3, 4), torch.ones(2, 5).long()),
    "error:two_axes_only": lambda: torch.mm(torch.ones(2, 2, 2), _x),
    "error:numbers_of_axes": lambda: torch.cat((_x, torch.ones(2, 3, 4))),
    "error:list_of_tensors": lambda: torch.stack([]),
    "error:sizes_of_pieces": lambda: _x.split([1, 1], dim=1),
    "error:two_left_open": lambda: _x.view(-1, -1),
    "error:mean_of_integers": lambda: _mask.mean(),
    "error:minus_of_bool": lambda: -_mask,
    "error:turned_no_bool": lambda: ~_x,
    "error:two_results": lambda: _x.max(-1) / 2,  # type: ignore[operator]
    "error:number_for_tensor": lambda: torch.sqrt(4),  # type: ignore[arg-type]
    "error:module_lacks": lambda: math.softmax(_x),  # type: ignore[attr-defined]
    "error:tuple_for_tensor": lambda: F.relu((_x, _x)),  # type: ignore[arg-type]
    "error:numpy_of_learning": lambda: torch.ones(2, requires_grad=True).numpy(),
    "error:negative_size": lambda: torch.ones(-1),
    "error:same_axis_twice": lambda: _x.diagonal(dim1=1, dim2=1),
    "error:mask_and_causal": lambda: F.scaled_dot_product_attention(
        *[torch.ones(1, 3, 2)] * 3, torch.ones(3, 3).bool(), is_causal=True
    ),
    "error:written_into": lambda: _write_into((1, 2)),
    "error:no_parts": lambda: len(3),  # type: ignore[arg-type]
    "error:no_power": lambda: 3 ^ 0.5,  # type: ignore[operator]
    "error:layer_not_called": lambda: nn.Linear(1, 1) @ _x,  # type: ignore[operator]
    "error:sign_between": lambda: [_x] @ _x,  # type: ignore[operator]
    "error:half_not_implemented": lambda: torch.ones(2).bool().softmax(0),
    "error:nothing_to_reduce": lambda: torch.ones(2, 0).amax(-1),
    "error:mask_as_index": lambda: _x[torch.ones(1, _x.shape[1], dtype=torch.bool)],
    "error:einops_pattern": lambda: rearrange(_x, "a b c -> a b c"),
    "error:not_installed": lambda: import_module("no_such_module"),
    "error:unknown_name": lambda: never_defined,  # type: ignore[name-defined]  # noqa: F821
    "error:no_such_attribute": lambda: _x.no_such,
    "error:endless_recursion": lambda: _again(),
    "error:exits": lambda: exit(),
    "error:interrupted": lambda: _throw(KeyboardInterrupt()),
    "error:own_assertion": lambda: _throw(AssertionError("d_model")),
    "error:division_by_zero": lambda: 1 // 0,
    "error:missing_key": lambda: {}["k"],
    "error:value_error": lambda: int("k"),
    "error:wrong_argument": lambda: torch.zeros_like("a"),  # type: ignore[arg-type]
    "error:error_FileNotFoundError": lambda: _throw(FileNotFoundError("No {such} file")),
}


def _take_apart(shape: torch.Size) -> Any:
    a, b, c = shape
    return a, b, c


def _write_into(parts: Any) -> None:
    parts[0] = 3


def _again() -> Any:
    return _again()


def _throw(error: BaseException) -> Any:
    raise error


KNOWN = (*ERRORS, *BY_KIND.values())


def stops_with(key: str) -> BaseException:
    try:
        STOPS[key]()
    except BaseException as error:
        return error
    raise AssertionError(f"{key} does not stop")


@pytest.mark.parametrize("key", STOPS)
def test_what_torch_says_is_explained(key: str) -> None:
    error = stops_with(key)
    plain = explain(Raised(error))
    assert plain.key == key and is_a_sentence(plain.does + "."), plain
    known = {f"error:{k.key}".replace("error:fixed", "fixed"): k.asks for k in KNOWN[::-1]}
    assert plain.asks == known.get(key, "") and (not plain.asks or is_a_sentence(plain.asks))
    name = type(error).__name__
    once = plain.does.removeprefix(f"It stops with {name}: ")  # what is said is said once
    there = explain(Raised(error, 7, "y = f(`x`)"), "with T = 1")
    assert there.key == key and there.asks == plain.asks
    assert there.does == (
        f"Line 7 of your code stops with {name} (with T = 1): `y = f('x')`. {once}"
    )
    assert explain(Raised(error, 7)).does == f"Line 7 of your code stops with {name}. {once}"
    noted = explain(Raised(error), "with T = 1")
    assert noted.does == f"It stops with {name} (with T = 1). {once}"
    quotes = plain.does.count("(The message: ")
    assert quotes == (key in {"fixed_device", *(f"error:{k.key}" for k in ERRORS)})


OTHERWISE: dict[str, tuple[str, Callable[[], Any]]] = {
    "a float for a size of a copy": ("integer_needed", lambda: _x.expand((2, 3.0))),
    "a float for an axis": ("integer_needed", lambda: _x.permute(0, 1.0)),
    "a float for a place": ("integer_needed", lambda: _x[1.0]),
    "a float for parts": ("integer_needed", lambda: _x.split((1, 1.0))),
    "a tensor for a size": ("wrong_argument", lambda: torch.zeros((2, _x))),
    "a text for an axis": ("wrong_argument", lambda: _x.permute("a")),
    "too few sizes": ("broadcast_shapes", lambda: _x.expand(3)),
    "a longer axis": ("broadcast_shapes", lambda: _x.expand(4, 3)),
    "too few axes": ("axes_to_name", lambda: _x.permute(1)),
}


@pytest.mark.parametrize("what", OTHERWISE)
def test_what_only_resembles_a_known_error_is_reported_as_it_is(what: str) -> None:
    key, stops = OTHERWISE[what]
    with pytest.raises((TypeError, RuntimeError, IndexError)) as error:
        stops()
    assert explain(Raised(error.value)).key == f"error:{key}"


def test_every_known_error_has_words() -> None:
    assert {k.key for k in ERRORS} == {
        key.removeprefix("error:") for key in list(STOPS)[: len(ERRORS)]
    }


def test_a_kind_that_says_it_all_comes_before_the_message() -> None:
    kinds = NameError, UnboundLocalError, SystemExit, KeyboardInterrupt
    for kind in kinds:
        said = explain(Raised(kind("name 'mat2' is not defined")))
        assert said.key == f"error:{BY_KIND[kind.__name__].key}"
    pattern = explain(Raised(EinopsError("Shape mismatch, can't divide axis of length 5 in 3")))
    assert pattern.key == "error:einops_pattern"
    shouted = [explain(Raised(RuntimeError(str(stops_with(k)).upper()))).key for k in STOPS]
    assert shouted[: len(ERRORS)] == list(STOPS)[: len(ERRORS)]


def test_a_call_that_never_reached_the_code_has_a_wrong_signature() -> None:
    error = TypeError("f() takes 1 positional argument but 2 were given.")
    finding = explain(Raised(error))
    assert finding.key == "error:wrong_signature" and "but 2 were given." in finding.does
    assert is_a_sentence(finding.does) and is_a_sentence(finding.asks) and ".." not in finding.does
    assert explain(Raised(error, 7, "f(1, 2)")).key == "error:wrong_argument"


def test_a_message_stands_where_the_words_want_it() -> None:
    for kind in (AttributeError, IndexError, ValueError, KeyError, OSError):
        does = explain(Raised(kind("... Some {odd} words."))).does
        assert "{message}" not in does and "... Some {odd} words" in does
        assert not does.endswith("..")
    quoted = explain(Raised(RuntimeError("...XX size mismatch, got 3X."))).does
    assert quoted.endswith("(The message: ...XX size mismatch, got 3X.)")
    cut = explain(Raised(RuntimeError("promoted types " * 30))).does
    assert cut.endswith("promoted types promoted ….)") or cut.endswith("promoted types ….)")


def test_a_message_is_quoted_in_short_and_in_one_line() -> None:
    long = explain(Raised(RuntimeError("shape mismatch:\n  " + "indices " * 100 + ". Try this.")))
    assert "\n" not in long.does and 100 < len(long.does) < 400 and "Try this" not in long.does
    quoted = explain(Raised(RuntimeError("size mismatch, got input (3), mat (2x3), vec (2)")))
    assert "(The message: size mismatch, got input (3), mat (2x3), vec (2).)" in quoted.does


# --- what no slip explains -----------------------------------------------------------------------


def tokens() -> list[Case]:
    """Sizes that tell the axes apart, then a vague one."""
    sizes = [{"B": 2, "T": 5, "d": 3}, {"B": 3, "T": 7, "d": 2}, {"B": 1, "T": 2, "d": 2}]
    shapes = [tuple(s.values()) for s in sizes]
    torch.manual_seed(0)
    return [
        Case((random(*shape),), s, "with x just so" * (i == 1))
        for i, (shape, s) in enumerate(zip(shapes, sizes, strict=True))
    ]


@partial(TOY, make_cases=tokens, gives=("squares (B, T, d)",))
def squares(x: Tensor) -> Tensor:
    return x * x


@partial(TOY, make_cases=tokens, gives=("squares (B, T, d)", "signs (B, T, d)"))
def squares_and_signs(x: Tensor) -> tuple[Tensor, Tensor]:
    return x * x, x > 0.5


@partial(TOY, make_cases=tokens, gives=("total ()",))
def total(x: Tensor) -> Tensor:
    return x.sum()


@partial(
    TOY,
    make_cases=lambda: [Case((n,), {"n": n, "d": d}) for n, d in ((5, 3), (7, 2), (2, 11))],
    gives=("count"),
)
def count(n: int) -> int:
    return 10**4 + n


PROBLEMS = {one.name: one for one in (squares, squares_and_signs, total, count)}
DESCRIBED = """\
squares:
  (x * x, x) | more_than_asked |
      returns a tuple of 2. The first of them is right, and is all that is asked for
  (x * x).tolist() | returns_list | a list
  (x * x).numpy() | returns_ndarray | a numpy array
  "x" | returns_str | text
  (y for y in x) | returns_generator | a generator (`yield`
  {1, 2} | returns_set | an object of type set
  None if len(x) == 3 else x * x | returns_NoneType | `None`
  (x * x).to_sparse() | returns_Tensor | sparse, complex or otherwise
  (x * x).to("meta") | fixed_device | on a fixed device
  x * x / 0 * 0 | nan_made | which multiplies 0 by ∞.
  (x * x).index_fill(0, torch.tensor([0]), math.nan) | nan | has NaN
  (x * x).float() | fixed_dtype | has dtype float32 for float64 input
  (x * x).long() | fixed_dtype | has dtype int64 for float64 input
  x.exp() * x.sin() | values | Your result has the right shape, (B, T, d), but the wrong numbers.
  x * x * 3 | relation:factor | 3 times
  (x * x).sum(1) | shape | has shape (B, d) = (2, 3), but it should be (B, T, d) = (2, 5, 3).
  x.exp().unsqueeze(0).expand(11, *x.shape) | shape |
      Your result has shape (11, B, T, d) = (11, 2, 5, 3), but
  x.exp().sum() | shape | is a single number, of shape (), but it
  x.new_zeros(11, 13) | shape | has shape (11, 13) on every input, but it should be
squares_and_signs:
  x * x | returns_Tensor |
      one tensor, but it should be 2 results: squares (B, T, d), signs (B, T, d).
  (x, x, x) | result_count | returns 3 things instead of 2: squares (B, T, d), signs (B, T, d).
  (x * x, (x > 0.5).int()) | not_bool | Your signs has dtype int32, but it should be bool
  (x * x, x < 2) | values | Your signs has the
  (x**3, x > 0.5) | values | Your squares has the right shape
total:
  x.sum() * 3 | relation:factor | ; the right number is
  x.exp().sum() + x.sin().sum() | not_doubled | ; the right number is
count:
  10**4 + 3 * n | relation:gap | gives 10015; the right
  10**4 + n + n**5 | values | is 10005. When `n` is doubled, the right number becomes
  10**4 + n + (n != 2) | values | gives 10006; the right
  10**4 + 3 * n if n == 5 else 0.5 | values | gives 10015; the
  10.0**4 + n | returns_float | a float, but it should be an int.
  torch.tensor(n) | returns_Tensor | one tensor, but it should be an int
"""
ROWS = [
    (PROBLEMS[name], *re.split(r" \|\s+", row))
    for name, rows in re.findall(r"^(\w+):\n((?:  .*\n)+)", DESCRIBED, re.M)
    for row in re.findall(r"^  (\S.*(?:\n    .*)?)", rows, re.M)
]


@pytest.mark.parametrize(("asked", "answer", "key", "words"), ROWS)
def test_what_no_slip_explains_is_described(
    asked: Problem, answer: str, key: str, words: str
) -> None:
    name, names = asked.arguments[0], {"torch": torch, "math": math}
    report = judge(asked, eval(f"lambda {name}: {answer}", names))
    assert report.passed is False and report.slips == (key,), str(report)
    (finding,) = report.findings
    assert words in finding.does
    for text in filter(None, (finding.does, finding.asks, report.where, *report.notes)):
        assert is_a_sentence(text), text
    assert not report.picture or report.where == "It shows on B = 2, T = 5, d = 3."
    assert finding.asks
    assert (report.picture is not None) == (
        asked in (squares, squares_and_signs)
        and key in ("values", "nan", "nan_made", "relation:factor")
    )


# --- naming slips --------------------------------------------------------------------------------

SHAPES = ((13, 3), (5, 3), (7, 2), (3, 3), (1, 4), (2, 11), (11, 5), (2, 13))


def grids() -> list[Case]:
    """One of 3 × 3 and one with a single row say less, small as they are."""
    torch.manual_seed(0)
    return [
        Case((random(T, d),), {"T": T, "d": d}, f"{'where' if T == 2 else 'with'} T is {T}")
        for T, d in SHAPES
    ]


def named() -> Problem:
    @partial(TOY, make_cases=grids, gives=("y (T, d)",))
    def affine(x: Tensor, *, add: Any = lambda x: x + 1, scale: Any = lambda y: 2 * y) -> Any:
        return scale(add(x))

    def stops_at_7(y: Tensor) -> Tensor:
        return 3 * y if len(y) != 7 else _throw(LookupError())

    plus_5 = ("plus_5", "It adds 5.", "What is added?", lambda x: x + 5)
    affine.step([("tripled", "The factor is 3.", "Which is it?", lambda y: 3 * y)], at="scale")
    affine.step([plus_5], at="add")
    affine.step([("stops_at_7", "It stops at 7.", "Why?", stops_at_7)], at="scale")
    affine.step([("other_way", "", "", lambda x: 1 + x)], at="add")
    affine.step([("squared", "It squares.", "Why?", lambda y: y**2)], at="scale")
    return affine


def by_length(plan: Callable[[int, int], Any]) -> Callable[[Tensor], Any]:
    """An answer that does on input number i, of length T, what `plan(i, T)` says."""
    ways: dict[str, Callable[[Tensor], Any]] = {
        "right": lambda x: 2 * (x + 1),
        "tripled": lambda x: 3 * (x + 1),
        "strange": lambda x: x.exp() * x.sin(),
        "stops": lambda x: _throw(ArithmeticError("too much")),
    }
    shapes = SHAPES  # a global would be told: it comes from the notebook

    return lambda x: ways[plan(shapes.index(tuple(x.shape)), len(x))](x)  # type: ignore[arg-type]


def test_a_slip_is_named_and_shown_on_the_smallest_telling_input() -> None:
    report = judge(named(), lambda x: 3 * (x + 1))
    assert report.passed is False and report.slips == ("tripled",) and report.notes == ()
    assert report.name == "affine" and report.where == "It shows on T = 7, d = 2, with T is 7."
    assert report.picture is not None and report.picture.title == "y:"
    assert len(report.picture.expected) == 7
    both = judge(named(), lambda x: 3 * (x + 5))
    assert set(both.slips) == {"tripled", "plus_5"} and both.notes == ()


def test_a_slip_that_stops_explains_an_answer_that_stops_there() -> None:
    report = judge(named(), by_length(lambda i, T: "stops" if T == 7 else "tripled"))
    assert report.slips == ("stops_at_7",) and report.passed is False


@pytest.mark.parametrize(("T", "note"), [(5, " (with T is 5)"), (2, " (where T is 2)")])
def test_an_error_beside_a_slip_is_reported_too(T: int, note: str) -> None:
    report = judge(named(), by_length(lambda i, n: "stops" if n == T else "tripled"))
    assert report.slips == ("tripled", "error:error_ArithmeticError")
    assert f"stops with ArithmeticError{note}: `" in report.findings[1].does


@pytest.mark.parametrize(
    ("tripled", "strange", "is_named"),
    [(5, 3, True), (3, 5, False), (2, 1, False), (1, 2, False), (8, 0, True)],
)
def test_a_slip_that_explains_many_inputs_is_named(
    tripled: int, strange: int, is_named: bool
) -> None:
    """Unless what comes out right speaks against it."""
    ways = ["tripled"] * tripled + ["strange"] * strange + ["right"] * 8
    report = judge(named(), by_length(lambda i, T: ways[i]))
    assert report.slips == (("tripled",) if is_named else ("values",))
    assert (" and something else on the rest." in str(report)) == (is_named and tripled < 8)
    assert all(is_a_sentence(note) for note in report.notes)


@pytest.mark.parametrize("stops", [1, 4, 5, 8])
def test_an_answer_that_mostly_stops_is_explained_by_its_error(stops: int) -> None:
    ways = ["stops"] * stops + ["strange"] * (8 - stops)
    report = judge(named(), by_length(lambda i, T: ways[i]))
    assert report.passed is False and (report.picture is None) == (stops > 4)
    assert report.slips == (("error:error_ArithmeticError",) if stops > 4 else ("values",))
    assert ("(with T is 13)" in str(report)) == (stops == 1)  # one kind of inputs alone
    counted = f"On {stops} of the 8 inputs tried it stops with an error."
    assert (counted in str(report)) == (stops <= 4)
    alone = judge(named(), by_length(lambda i, T: "stops" if i == 1 else "right"))
    assert alone.slips == ("error:error_ArithmeticError",) and alone.passed is False
    assert "(with T is 5)" in str(alone)


RIGHT_WHERE: list[tuple[Callable[[int, int], bool], str]] = [
    (lambda i, T: T != 1, "It goes wrong where T = 1, and is right elsewhere."),
    (lambda i, T: T != 5, "It goes wrong with T is 5, and is right elsewhere."),
    (lambda i, T: T == 5, "Of the inputs tried, it is right with T is 5."),
    (lambda i, T: T in (2, 5), "Of the inputs tried, it is right where T is 2."),
    (lambda i, T: i == 5, ""),  # beside another of its kind that is wrong
    (lambda i, T: i in (0, 1, 2, 3, 5), ""),  # too many kinds
]


@pytest.mark.parametrize(("right", "note"), RIGHT_WHERE)
def test_where_it_is_right_is_said_in_short(right: Any, note: str) -> None:
    report = judge(named(), by_length(lambda i, T: "right" if right(i, T) else "strange"))
    assert report.slips == ("values",) and [*filter(None, report.notes)] == [note] * bool(note)


def test_results_in_another_order_are_named_with_what_is_left_out() -> None:
    does = {key: words for key, words, *_ in orders_of_results("QKV", "")}
    assert "results_012" not in does and len(does) == 3**3 - 1 + 2 * 3
    assert does["results_001"] == "Your code returns Q, Q, K, without V."
    assert (
        does["only_1"] == "Only K is returned."
        and does["without_1"] == "Only Q and V are returned."
    )


def test_a_wrong_dtype_is_named_where_it_is_all_that_is_wrong() -> None:
    right = judge(named(), lambda x: (2 * (x + 1)).float())
    assert (
        right.where == ""
        and right.slips == ("fixed_dtype",)
        and right.passed is False
        and right.picture is None
    )
    some = judge(named(), lambda x: (2 * (x + 1)).float() if len(x) == 1 else 2 * (x + 1))
    assert some.slips == ("fixed_dtype",)
    tripled = judge(named(), lambda x: (3 * (x + 1)).float())
    assert tripled.slips == ("tripled",)
    mixed = judge(named(), lambda x: (2 * (x + 1)).float() if len(x) == 1 else x.exp() * x.sin())
    assert mixed.slips == ("values",)
    both = judge(named(), lambda x: (x.exp() * x.sin()).float())
    assert both.slips == ("values", "fixed_dtype")


def test_one_result_beside_many_errors_may_be_enough() -> None:
    ways = ["tripled", *["stops"] * 7]
    report = judge(named(), by_length(lambda i, T: ways[i]))
    assert report.slips == ("tripled", "error:error_ArithmeticError")


def test_a_case_may_allow_more_everywhere() -> None:
    loose = named()
    loose.make_cases = lambda: [replace(case, tolerance=0.01) for case in grids()]
    off = 1.001
    assert judge(loose, lambda x: 3 * off * (x + 1)).slips == ("tripled",)
    half = judge(loose, lambda x: (2 * off * (x + 1)).float())
    assert half.slips == ("fixed_dtype",) and half.where == ""
    corner = torch.tensor([[1.0] + [0.0] * 10])
    one_cell = judge(loose, lambda x: 2 * off * (x + 1) + x.exp().sum() * corner[:, : x.shape[1]])
    assert one_cell.passed is False and one_cell.picture is not None
    first, *rest = one_cell.picture.differs[0]
    assert first and not any(rest)
