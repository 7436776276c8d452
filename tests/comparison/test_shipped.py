"""The published mistakes: each is one, is what it says, and is recognised by what it computes."""

import itertools
import re

import pytest
import torch
from torch import nn

import mha_lesson
from mha_course import compare, shipped
from mha_course.collection.shipped import bugs, draw, not_bugs, right, with_same_weights
from mha_lesson import MultiHeadAttention, causal_mask, padding_mask

B, T, D, H = 3, 5, 14, 2
OF_THE_CLASS = [bug for bug in bugs().values() if bug.base == "Attention"]
OF_THE_WRITER = [bug for bug in bugs().values() if bug.base == "Writer"]
THREAD = re.compile(r"[\w.-]+/[\w.-]+#\d+")
named = {"ids": lambda bug: bug.name}


@pytest.fixture
def reference():
    torch.manual_seed(7)
    return right()(D, H).double()


@torch.no_grad()
def with_weights(ours, reference):
    """The package's class, whose projections are one layer, with those of three."""
    layers = reference.w_q, reference.w_k, reference.w_v
    ours = ours.double()
    ours.w_qkv.weight.copy_(torch.cat([layer.weight for layer in layers]))
    ours.w_qkv.bias.copy_(torch.cat([layer.bias for layer in layers]))
    ours.w_o.load_state_dict(reference.w_o.state_dict())
    return ours


def inputs():
    x = draw(B, T, D, seed=1)
    masks = [None, causal_mask(T), padding_mask(torch.tensor([5, 3, 2]))]
    return [(x, mask) for mask in masks] + [(1e6 * x, masks[2])]


def test_there_are_enough_of_them_and_of_many_kinds():
    assert len(bugs()) >= 24 and len({bug.kind for bug in bugs().values()}) >= 14
    assert len(not_bugs()) >= 5
    for entry in [*bugs().values(), *not_bugs().values()]:
        assert entry.threads and all(THREAD.fullmatch(thread) for thread in entry.threads)


def test_what_is_not_broken_is_the_packages_own(reference):
    ours = with_weights(MultiHeadAttention(D, H), reference)
    for x, mask in [*inputs(), (draw(B, T, D, seed=2), torch.ones(T, T, dtype=torch.bool))]:
        torch.testing.assert_close(reference(x, mask), ours(x, mask=mask))


@pytest.mark.parametrize("bug", OF_THE_CLASS, **named)
def test_a_mistake_shows_on_some_input(bug, reference):
    """On masks, or in one of the two modes, or with scores as large as a real model's."""
    wrong = with_same_weights(bug.build, reference, D, H)
    gaps = [
        (wrong.train(mode)(x, mask) - reference(x, mask)).abs().max() / x.abs().max()
        for mode in (True, False)
        for x, mask in inputs()
    ]
    assert max(gaps) > 1e-3


def outputs_in_pieces(module, x, cuts):
    """The outputs, token by token or in longer pieces, with a cache."""
    cache, outputs = None, []
    for piece in x.split(cuts, dim=1):
        output, cache = module(piece, cache)
        outputs.append(output)
    return torch.cat(outputs, dim=1)


def test_the_writer_is_right():
    torch.manual_seed(7)
    reference = right("Writer")(24, 4, 2, 3).double()
    ours = with_weights(
        mha_lesson.GroupedQueryAttention(24, 4, 2, bias=True, rope_base=10_000.0, window=3),
        reference,
    )
    x = draw(2, 7, 24, seed=3)
    torch.testing.assert_close(reference(x)[0], ours(x))
    torch.testing.assert_close(outputs_in_pieces(reference, x, [3, 1, 3]), ours(x))


@pytest.mark.parametrize("bug", OF_THE_WRITER, **named)
def test_a_writers_mistake_shows(bug):
    torch.manual_seed(7)
    reference = right("Writer")(24, 4, 2, 3).double()
    wrong, x = with_same_weights(bug.build, reference, 24, 4, 2, 3), draw(2, 7, 24, seed=3)
    gap = (outputs_in_pieces(wrong, x, [3, 1, 3]) - reference(x)[0]).abs().max()
    assert gap > 1e-2


def test_what_is_no_mistake_changes_nothing(reference):
    """The misunderstandings that a line can show."""
    x, mask = inputs()[1]
    same = {
        "query_scaled": [("q @ k.mT / math.sqrt(d_k)", "(q / math.sqrt(d_k)) @ k.mT")],
        "fourth_root": [("q @ k.mT / math.sqrt(d_k)", "(q / d_k**0.25) @ (k / d_k**0.25).mT")],
        "masked_and_renormalised": [
            ("scores = scores.masked_fill(mask, torch.finfo(scores.dtype).min)", "pass"),
            (
                "weights.masked_fill(mask, 0.0)",
                "weights.masked_fill(mask, 0.0)\n"
                "            weights = weights / weights.sum(-1, keepdim=True)",
            ),
        ],
    }
    assert same.keys() <= not_bugs().keys()
    for name, changes in same.items():
        odd = shipped.Bug(name, "", "", (), "", True, tuple(changes))
        module = with_same_weights(odd.build, reference, D, H)
        torch.testing.assert_close(module(x, mask), reference(x, mask))


# --- a class of one's own beside them -------------------------------------------------------------


def with_causal(module, x):
    return module(x, causal_mask(x.shape[1]))


def compared(change, h=H, d=D, call=None):
    """The comparison of the right class with these lines changed."""
    odd = shipped.Bug(f"odd {change}", "", "", (), "", True, change)
    return compare(odd.build(d, h), call)


ZEROED = "        if mask is not None:\n            weights = weights.masked_fill(mask, 0.0)\n"
UNSEEN = {"dropout_in_evaluation": "drawn"}


@pytest.mark.one_in(5)
@pytest.mark.parametrize("bug", OF_THE_CLASS, **named)
def test_a_published_mistake_is_recognised(bug):
    found = compare(bug.build(D, H), with_causal)
    assert found.found == UNSEEN.get(bug.name, bug.name)
    mended = ", before it was mended" * (bug.mended and bug.name not in UNSEEN)
    assert f"{bug.threads[0]}{mended}" in str(found)


@pytest.mark.parametrize("fill", ["-1e9", "-math.inf"])
def test_an_inverted_mask_is_recognised_whatever_fills_a_row_that_is_blocked(fill):
    filled = [("torch.finfo(scores.dtype).min", fill), (ZEROED, "")]
    found = compared([*bugs()["mask_inverted"].changes, *filled], call=with_causal)
    assert found.found == "mask_inverted" and found.causal


@pytest.mark.long
def test_positions_that_are_lost_are_not_called_right():
    """With a head's queries and keys turned alike, nothing turns: a class without positions."""
    report = str(compare(bugs()["rotated_by_head"].build(24, 4, 4, 2048)))
    assert (
        report.startswith("RIGHT: multi-head attention, causal, takes no mask")
        and "no positions" in report
    )
    assert bugs()["rotated_by_head"].threads[0] in report


def test_a_mistake_shows_with_tiny_weights_in_float32():
    """With its own tiny weights it would agree with every scale, to float32's digits."""
    module = bugs()["scale_d_model"].build(D, H)
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=1e-3)
    assert compare(module, lambda m, x: m.float()(x.float())).found == "scale_d_model"


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("name", "sizes", "found", "other"),
    [
        ("scale_n_heads", (12, 3), "scale_n_heads", "any scale of the same value"),
        ("no_w_o", (15, 3), "no_w_o", None),
        ("scale_n_heads", (64, 8), "right", "scale_n_heads"),
        ("scale_twice", (64, 16), "scale_n_heads", "scale_twice"),
        ("scale_d_model", (14, 1), "right", "scale_d_model"),
    ],
)
def test_what_is_the_same_at_one_size_is_said(name, sizes, found, other):
    report = compare(bugs()[name].build(*sizes))
    assert report.found == found
    alike = [line for line in report.seen if "would give the same" in line]
    assert (other in alike[0]) if other else not alike


def test_what_was_not_tried_is_said():
    def drawing(module, x):
        return nn.functional.dropout(module(x), 0.1, module.training)

    def clamped(module, x):
        return module(x).clamp(-100, 100)

    for call, line in [
        (drawing, "In training it drops 0.1 of a tensor of axes (2, 6, 14)."),
        (clamped, "It gives something else where scores reach about "),
    ]:
        found = compare(right()(D, H), call)
        assert found.found == "right" and line in str(found)
    assert "Tried in float64, not in torch.bfloat16." in compare(right()(D, H).bfloat16()).seen


class Fused(nn.Module):
    """One layer for all three, its rows in any order; without biases, in the other layout."""

    def __init__(self, axes="h n d_k", order=(0, 1, 2)):
        super().__init__()
        self.c_attn = nn.Parameter(torch.randn(D, 3 * D) / 4)
        self.c_proj = nn.Parameter(torch.randn(D, D) / 4)
        self.num_heads, self.axes, self.order = H, axes.split(), order

    def forward(self, x):
        sizes = {"n": 3, "h": H, "d_k": D // H}
        rows = (x @ self.c_attn).unflatten(-1, [sizes[axis] for axis in self.axes])
        n, h, d_k = (2 + self.axes.index(axis) for axis in sizes)
        rows = rows.permute(n, 0, h, 1, d_k)
        q, k, v = (rows[i] for i in self.order)
        context = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return context.transpose(1, 2).flatten(2) @ self.c_proj, None


class PerHead(nn.Module):
    """A list of heads, each with layers of its own, scaled by the whole width."""

    def __init__(self, h=H):
        super().__init__()
        self.each = nn.ModuleList(nn.Module() for _ in range(h))
        for head in self.each:
            head.query, head.key, head.value = (nn.Linear(D, D // h) for _ in range(3))
        self.mixer = nn.ModuleList([nn.Linear(D, D)])

    def forward(self, x):
        scores = [head.query(x) @ head.key(x).mT / D**0.5 for head in self.each]
        values = [head.value(x) for head in self.each]
        heads = [s.softmax(-1) @ v for s, v in zip(scores, values, strict=True)]
        return self.mixer[0](torch.cat(heads, dim=-1))


def test_heads_in_a_list_and_a_last_layer_of_another_name():
    torch.manual_seed(7)
    module = PerHead()
    assert compare(module).found == "scale_d_model"
    layers = {f"w_{n[0]}": [f"each.{i}.{n}" for i in range(H)] for n in ("query", "key", "value")}
    assert compare(module, layers=layers | {"w_o": "mixer.0"}).found == "scale_d_model"


def test_other_names_layouts_and_results():
    torch.manual_seed(7)
    found = compare(Fused())
    assert (found.found, found.causal) == ("right", True)
    assert "Its `w_qkv` is read as (h, 3, d_k) of q, k, v." in found.seen
    theirs = nn.MultiheadAttention(D, H, batch_first=True, dropout=0.2)
    assert compare(theirs, lambda m, x: m(x, x, x, need_weights=True)).found == "right"
    tokens_first = nn.MultiheadAttention(D, H)
    assert compare(tokens_first, lambda m, x: m(x, x, x)).found == "over_the_batch"
    listed = nn.Module()
    listed.linears = nn.ModuleList(nn.Linear(D, D) for _ in range(4))

    def call(module, x):
        layers = zip(("w_q", "w_k", "w_v", "w_o"), module.linears, strict=True)
        weights = {f"{name}.{n}": p for name, own in layers for n, p in own.named_parameters()}
        return torch.func.functional_call(right()(D, H), weights, (x,))

    assert compare(listed, call, n_heads=H).found == "right"


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("call", "says"),
    [
        (
            lambda m, x: m(x) * 2 + x.roll(1, 0),
            [
                "Tokens see later ones.",
                "Sequences see each other.",
                "w_k from w_k",
                "h = 2: ",
                "Exchanging the first two tokens changes nothing for later ones.",
            ],
        ),
        (lambda m, x: 0 * m(x), ["All outputs are zeros."]),
        (lambda m, x: m(x) * float("nan"), ["Outputs are NaN or infinite."]),
        (
            lambda m, x: with_causal(m, x * torch.arange(x.shape[1])[:, None]),
            ["Tokens do not see later ones.", "changes what later ones get: positions"],
        ),
    ],
)
def test_where_nothing_fits_it_says_what_it_sees(call, says):
    found = compare(right()(D, H), call)
    assert found.found == "" and str(found).startswith("UNKNOWN: neither")
    assert [words for words in says if words not in str(found)] == []


def test_it_leaves_the_module_and_the_generator_as_they_are():
    module = right()(D, H)
    before, state = {n: p.clone() for n, p in module.named_parameters()}, torch.get_rng_state()
    compare(module)
    assert module.training and torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(p, before[n]) for n, p in module.named_parameters())


@pytest.mark.parametrize(
    ("module", "options", "match"),
    [
        (3, {}, "^module must be an nn.Module; got int 3"),
        (nn.Linear(3, 3), {"n_heads": 1}, "^layers must be given, or cannot be: .* are not among"),
        (nn.GELU(), {}, "^layers must be given, .* its parameters, which are not matrices"),
        (
            right()(D, H),
            {"layers": {"w_q": "nowhere"}},
            "^layers must map w_qkv or .* got .*nowhere",
        ),
        (
            mha_lesson.MultiHeadAttention(D, H, d_k=3),
            {},
            "^layers must .*w_o .14, 6.*an h·d_k other than d_model",
        ),
        (right("Writer")(12, 4, 2, 3), {}, "^layers must be .*Shared or narrower keys"),
        (nn.MultiheadAttention(D, H, kdim=5), {}, "^call must run for x of shape"),
        (right()(D, H), {"call": lambda m, x: m(x + torch.ones(7, D))}, r"^call must .*\(2, 5, 14"),
        (right(), {}, r"^module must be an nn.Module that is made, Attention\(…\)"),
        (right()(D, H), {"n_heads": 5}, "^n_heads must divide d_model = 14; got 5"),
        (nn.MultiheadAttention(D, H), {}, r"^call must run for x of shape \(3, 7, 14\).*'key'"),
    ],
)
def test_what_cannot_be_compared_is_refused(module, options, match):
    with pytest.raises((TypeError, ValueError), match=match):
        compare(module, **options)


# --- right up to here only, and two at once -------------------------------------------------------


@pytest.mark.one_in(4)
@pytest.mark.parametrize("fill", [-20, -35, -100, -1e4, -1e5])
@pytest.mark.parametrize("call", [with_causal, None])
def test_a_fill_that_scores_reach_is_named(fill, call):
    found = compared([("torch.finfo(scores.dtype).min", str(fill)), (ZEROED, "")], call=call)
    assert found.found == "fill_too_high"
    assert fill == -1e5 or "x where scores reach " in found.verdict
    if call and fill > -1e5:
        assert found.causal and 4 <= found.below <= -3 * fill
        assert any(f" {found.below:,.0f}." in line for line in found.seen)


def test_a_gate_that_starts_closed_is_named():
    class Gated(right()):
        def __init__(self):
            super().__init__(D, H)
            self.gate = nn.Parameter(torch.zeros(1))

        def forward(self, x):
            return super().forward(x) + self.gate * x.mean(0)

    found = compare(Gated())
    assert found.found == "partly" and "Fails with other values of gate" in found.seen[0]


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    "names",
    [
        ("scale_d_model", "no_w_o"),
        ("scale_forgotten", "split_by_view"),
        ("softmax_over_queries", "scale_upside_down"),
    ],
)
def test_two_mistakes_are_both_named(names):
    found = compared([change for name in names for change in bugs()[name].changes], 3, 12)
    assert {*found.found.split(", ")} == {*names}
    assert all(bugs()[name].does in str(found) for name in names)


ORDERS = [
    *zip(itertools.permutations(("n", "h", "d_k")), itertools.permutations(range(3)), strict=True)
]


@pytest.mark.one_in(6)
@pytest.mark.parametrize(("axes", "order"), ORDERS[::-1])
def test_rows_of_a_fused_layer_are_read_in_any_order(axes, order):
    torch.manual_seed(7)
    found = compare(Fused(" ".join(axes), order))
    assert (found.found, found.causal) == ("right", True)
