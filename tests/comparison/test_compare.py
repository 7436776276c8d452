"""*Right* is said of what was tried: classes wrong somewhere, and right ones of all styles."""

import math
from functools import partial
from itertools import product

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import mha_lesson
from mha_course import compare, shipped
from mha_course.collection.shipped import right
from mha_course.comparison import command
from mha_lesson import causal_mask

D, H = 12, 3
SCORES = "        scores = q @ k.mT / math.sqrt(d_k)\n"
WEIGHTS = "        weights = scores.softmax(dim=-1)\n"
START = "        B, T, d_model = x.shape\n"
FILL = "scores = scores.masked_fill(mask, torch.finfo(scores.dtype).min)"
ZERO = "weights = weights.masked_fill(mask, 0.0)"
END = "        return self.w_o(context)"


def changed(*changes):
    """The right class with lines put in their place, or after them where they begin with +."""
    pairs = [(old, old + new[1:] if new.startswith("+") else new) for old, new in changes]
    return shipped.Bug(f"odd {pairs}", "", "", (), "", True, pairs).build


def scores(line):
    return ((SCORES, f"+        {line}\n"),)


def weights(line):
    return ((WEIGHTS, f"+        {line}\n"),)


def filled(line):
    return (FILL, line), (ZERO, "pass")


WRONG_SOMEWHERE = {
    "lengths that are multiples of 8": scores("scores = scores * (1 + (T % 8 == 0 and T > 8))"),
    "lengths that are powers of 2": scores("scores = scores * (1 + (T & (T - 1) == 0 and T > 8))"),
    "512 tokens": scores("scores = scores * (1 + (T >= 512))"),
    "24 tokens": scores("scores = scores * (1 + (T == 24))"),
    "many tokens in training": scores("scores = scores * (1 + (self.training and T > 100))"),
    "sequences after the first": scores(
        "scores = torch.cat((scores[:1], scores[1:] * (1 + (T >= 10))))"
    ),
    "a large batch": (
        (
            "return self.w_o(context)",
            "return self.w_o(context + (B * T > 32) * (B > 1) * context.mean(0))",
        ),
    ),
    "as many sequences as tokens": scores("scores = scores * (1 + (B == T and T > 1))"),
    "as many tokens as heads": scores("scores = scores * (1 + (B == 2 and T == h))"),
    "an input that is not contiguous": scores("scores = scores * (1 + (not x.is_contiguous()))"),
    "its input": ((END, f"        x.mul_(2)\n{END}"),),
    "dropout on scores": scores("scores = F.dropout(scores, 0.1, self.training)"),
    "dropout twice": weights(
        "weights = F.dropout(F.dropout(weights, 0.1, self.training), 0.1, self.training)"
    ),
    "dropout that shrinks": weights(
        "weights = weights * (torch.rand_like(weights) > 0.25) * 0.75 if self.training else weights"
    ),
    "noise in training": scores("scores = scores + self.training * torch.randn_like(scores)"),
    "no gradient of a layer": (
        ("self.w_k(x)", "F.linear(x, self.w_k.weight.data, self.w_k.bias)"),
    ),
    "no gradient": (("return self.w_o(context)", "return self.w_o(context).detach()"),),
    "gradients in evaluation": scores(
        "scores = scores * (1 + (torch.is_grad_enabled() and not self.training))"
    ),
    "a token of zeros": scores("scores[(x == 0).all(-1)[:, None, None].expand_as(scores)] = -1e9"),
    "equal tokens": (
        (END, END.replace("context", "context * (1 + (T > 1) * (x == x[:, :1]).all())")),
    ),
    "exp of large scores in float32": (
        (WEIGHTS, "        weights = scores.exp() / scores.exp().sum(dim=-1, keepdim=True)\n"),
    ),
    "as many tokens as heads, among the heads": (
        (WEIGHTS, "        weights = scores.softmax(dim=1 if T == h and B > 1 else -1)\n"),
    ),
    "a second call": (
        (START, "+        self.n = getattr(self, 'n', 0) + 1\n"),
        (SCORES, "+        scores = scores * (1 + (self.n > 40))\n"),
    ),
    "a mask of the last call": (
        (START, "+        self.held = mask = getattr(self, 'held', mask)\n"),
    ),
    "a mask changed in place": filled(f"{FILL}\n            mask.zero_()"),
    "a mask of many tokens": filled(FILL.replace("mask,", "mask & (T < 33),")),
    "a mask in training": ((START, "+        mask = None if self.training else mask\n"),),
    "a mask that leaks a little": filled("scores = scores.masked_fill(mask, -4.0)"),
    "masks of other sequences": filled("scores = scores.masked_fill(mask.roll(1, 0), -1e9)"),
    "a mask filled and thrown away": filled("scores.masked_fill(mask, -1e9)"),
    "training": scores("scores = scores * (1 + self.training)"),
    "float32": scores("scores = scores * (1 + (x.dtype == torch.float32))"),
    "detached": scores("scores = scores.detach()"),
    "one token": scores("x, v = x * (1 + (T < 2)), v * (1 + (T < 2))"),
}
J = "torch.arange(T)"
ONLY = {  # what is seen only up to somewhere → the sizes
    f"({J}[:, None] - {J}).abs() > {{0}}": (7, 16, 40, 200),
    f"({J} // {{0}})[:, None] != {J} // {{0}}": (8, 16, 64),
    "scores < scores.topk(min(T, {0}), dim=-1).values[..., -1:]": (8, 32),
    "torch.tensor(B > {0}) & (torch.arange(T) == 0)": (3, 4, 5),
}
WRONG_SOMEWHERE |= {
    f"blocked where {blocked}": scores(f"scores = scores.masked_fill({blocked}, -1e9)")
    for blocked in (line.format(n) for line, ns in ONLY.items() for n in ns)
}


def taking(parameters, mask):
    """The right class with other parameters beside x, of which it makes its mask."""
    later = "later = torch.ones(T, T, dtype=torch.bool).triu(1)"
    lines = f"+        {later}\n        j = torch.arange(T)\n        mask = {mask}\n"
    return changed(("forward(self, x, mask=None", f"forward(self, x, {parameters}"), (START, lines))


PAD, LEN = "[:, None, None]", "lengths[:, None]"
CALLS = {
    "": None,
    "full": lambda m, x: m(x, torch.full((len(x),), x.shape[1])),
    "some": lambda m, x: m(x, (x.shape[1] - torch.arange(len(x))).clamp(min=1)),
    "open": lambda m, x: m(x, torch.zeros(len(x), 1, 1, x.shape[1])),
    "flag": lambda m, x: m(x, causal=True),
    "later": lambda m, x: m(x, causal_mask(x.shape[1])),
}
# a parameter | what is blocked without it | and with it | asked for | what `call` gives | found
MASKED = """
mask | later | later | causal keep |  | mask_dropped
key_padding_mask | later | later | causal |  | mask_dropped
lengths | later | later | causal |  | mask_dropped
mask | None | None |  | open | mask_dropped
mask | later | later / maskPAD | causal |  | right
lengths | later | later / (j >= LEN)PAD | causal |  | right
mask | None | mask & (j > 0) | blocked |  | mask_leaks
mask | None | mask & (j < T - 1) |  |  | mask_leaks
mask | None | mask & (j != 1) |  |  | mask_leaks
mask | None | mask & (j < T // 2) |  |  | mask_leaks
mask | None | ~mask & (j > 0) | keep |  | mask_leaks
mask | None | mask & (j != j[:, None]) |  |  | mask_leaks
mask | None | mask & (j < T - 1)[:, None] |  |  | mask_leaks
mask | later | later / mask[:1]PAD | causal |  | mask_of_the_first
mask | None | mask[..., (j - 1).clamp(min=0)] |  |  | mask_moved
lengths | None | (j >= LEN)PAD |  | some | right
lengths | None | (j >= LEN)PAD |  | full | right
lengths | None | (j > LEN)PAD |  | full | mask_moved
lengths | None | (j > LEN)PAD |  | some | mask_moved
lengths | None | (j >= LEN - 1)PAD |  | full | mask_moved
lengths | later | later / (j > LEN)PAD | causal |  | mask_moved
mask, causal=False | FLAG | later / mask if causal else mask | causal | flag | right
mask, causal=False | FLAG | later if causal else mask |  |  | mask_dropped
is_causal=True | None | later if is_causal else None | causal |  | right
is_causal=True | None | later | causal |  | mask_dropped
mask | later | mask |  |  | right
mask | later | mask | causal |  | causality_lost
mask | later | mask | causal meant |  | right
mask | None | ~maskPAD if mask.ndim == 2 else mask |  |  | right
mask | None | ~maskPAD if mask.ndim == 2 else mask | blocked |  | mask_inverted
mask | None | mask & (torch.arange(3)[:, None, None] == 0) |  |  | mask_of_one_head
mask | None | mask.repeat(1, 3, 1).view(3, B, T, T).transpose(0, 1) |  |  | mask_heads_first
mask | torch.ones(T, T).triu(2) > 0 | mask |  |  | causal_one_more
mask | torch.ones(T, T).triu(0) > 0 | mask |  |  | causal_one_fewer
is_causal=False | None | None if is_causal else later | causal |  | flag_inverted
mask | None | later |  |  | mask_made_causal
mask, causal=False, is_causal=False | FLAG | later if causal else mask |  |  | mask_dropped
unmasked=False | None | None if unmasked else later | causal |  | right
mask, pad | PADDED | mask if pad is None else mask / padPAD |  | later | right
mask, pad | PADDED | mask |  |  | mask_dropped
mask, pad | PADDED | mask if pad is None else mask & padPAD |  |  | masks_apart
"""


@pytest.mark.one_in(6)
@pytest.mark.parametrize("row", MASKED.strip().splitlines())
def test_a_mask_is_tried_for_what_it_must_change(row):
    parameters, without, beside, asked, call, found = (part.strip() for part in row.split("|"))
    first = parameters.split(",")[0].split("=")[0]
    mask = f"({without}) if {first} is None else {beside}".replace("/", "|")
    mask = mask.replace("||", "//").replace("FLAG", "later if causal else None")
    mask = (
        mask.replace("PADDED", "None if pad is None else padPAD")
        .replace("PAD", PAD)
        .replace("LEN", LEN)
    )
    named = ", ".join(p if "=" in p else f"{p}=None" for p in parameters.split(", "))
    comparison = compare(
        taking(named, mask)(D, H),
        CALLS[call],
        causal="causal" in asked or None,
        true_means=next((m for m in ("keep", "blocked") if m in asked), None),
        ignore=["causality_lost"] * ("meant" in asked),
    )
    assert comparison.found == found, comparison


ADDED = changed(*filled("scores = scores + mask"))


@pytest.mark.one_in(3)
@pytest.mark.parametrize("meant", [None, "blocked", "keep"])
def test_true_that_is_added_blocks_nothing(meant):
    found = compare(ADDED(D, H), true_means=meant)
    assert found.found == "mask_added" and found.verdict.startswith("PARTLY mask_added: `mask` (")
    assert "added to the scores as 1 and 0" in str(found)
    assert "-inf added to the scores (T, T)" in str(found.masks)
    given = compare(ADDED(D, H), HANDED["keyword"], true_means=meant)
    assert given.found == "mask_added" and given.verdict.startswith("WRONG"), given


def test_a_mask_of_numbers_that_call_gives_promises_no_bools():
    found = compare(ADDED(D, H), lambda m, x: m(x, **numbers(x)), causal=True)
    assert found.found == "right" and "-inf added to the scores (T, T)" in found.verdict
    assert "a row without a key gives NaN" in str(found)


def later(x):
    return {"mask": causal_mask(x.shape[1])}


def padded(x):
    lengths = torch.tensor([x.shape[1], x.shape[1] - 2, 1])[torch.arange(len(x)) % 3].clamp(min=1)
    return {"key_padding_mask": torch.arange(x.shape[1]) >= lengths[:, None]}


def numbers(x):
    return {
        "mask": torch.zeros_like(x[0] @ x[0].mT).masked_fill(causal_mask(x.shape[1]), -torch.inf)
    }


NOTHING, GIVEN_WEIGHTS = {}, ({}, {"need_weights": False}, {"average_attn_weights": False})
WAYS = [  # of the package's class, and of PyTorch's, which mixes no kinds of masks
    *product(
        ["own"], (NOTHING, later, padded), ({}, {"causal": True}), ({}, {"return_weights": True})
    ),
    *product(["torch"], (NOTHING, padded), (NOTHING, later), GIVEN_WEIGHTS),
    *product(
        ["torch"],
        (NOTHING, padded),
        (later,),
        ({"is_causal": True}, {"is_causal": True, "need_weights": False}),
    ),
    *product(["torch"], (numbers,), (NOTHING,), GIVEN_WEIGHTS),
]


@pytest.mark.one_in(10)
@pytest.mark.parametrize(
    "way", WAYS, ids=lambda way: " ".join(getattr(p, "__name__", str(p)) for p in way)
)
def test_its_own_and_torchs_class_are_right_in_every_way_of_calling_them(way):
    name, *parts = way

    def call(module, x):
        given = {}
        for part in parts:
            given |= part(x) if callable(part) else part
        if name == "own":
            if "key_padding_mask" in given:
                given["mask"] = given.pop("key_padding_mask")[:, None, None]
            return module(x, **given)
        if "mask" in given:
            given["attn_mask"] = given.pop("mask")
        return module(x, x, x, **given)

    make = {
        "own": mha_lesson.MultiHeadAttention,
        "torch": partial(nn.MultiheadAttention, batch_first=True),
    }
    causal = any(part in (later, numbers) or "causal" in str(part) for part in parts)
    found = compare(make[name](D, H), call, causal=causal, true_means="blocked")
    assert found.found == "right" and "return_weights" not in str(found.masks), found


END_IN_PLACE = "        out = self.w_o(context)\n        x += 1\n        return out"
HALF = "with torch.autocast('cpu', torch.bfloat16): return self.w_o(context).to(x.dtype)"
ONE_LAYER = [("self.w_k(x)", "self.w_q(x)"), ("self.w_v(x)", "self.w_q(x)")]
SMALL = [
    change
    for n in "qkv"
    for change in (
        (f"self.w_{n}(x).view(B, T, h, d_k)", f"self.w_{n}(x.view(B, T, h, d_k))"),
        (f"self.w_{n} = nn.Linear(d_model, d_model)", f"self.w_{n} = nn.Linear(8, 8)"),
    )
]
AFTER = [
    *weights("weights = F.dropout(weights, 0.1, self.training)"),
    (" / math.sqrt(d_k)", ""),
    ("softmax(dim=-1)", "softmax(dim=-1) / math.sqrt(d_model)"),
]
TIED = [("self.w_k = nn.Linear(d_model, d_model)", "self.w_k = self.w_q")]
CAUSAL = "+        mask = torch.ones(T, T).triu(1) > 0 if mask is None else mask\n"
STRICT = "+        if mask is not None:\n            raise TypeError('a BlockMask is wanted')\n"
ONLY_32 = "scores = scores.masked_fill(mask, -1e4 if x.dtype == torch.float32 else -math.inf)"
SCALED = ("math.sqrt(d_k)", "math.sqrt(d_model)")
IN_REACH = filled("scores = scores.masked_fill(mask, -1e4)")
BIASED = scores("scores = scores if bias is None else scores + bias")
FIRST_THAT_DIFFERS = {  # what is found, and words for it → the change
    ("partly", "changed in place"): [(END, END_IN_PLACE)],
    ("partly", "as under autocast"): [("return self.w_o(context)", HALF)],
    ("scale_n_keys", "number of keys"): [("math.sqrt(d_k)", "math.sqrt(T)")],
    ("scale_half_d_k", "d_k / 2"): [("math.sqrt(d_k)", "(d_k ** 1/2)")],
    ("weights_scaled_d_model", "after the softmax"): AFTER,
    ("layers_tied", "w_k from w_k"): TIED,
    ("one_layer_for_all", "without effect: w_k, w_v"): ONE_LAYER,
    ("one_projection_for_all_heads", "h = 3"): SMALL,
    ("fill_too_high", "in float32: token 0 sees token 1"): [(START, CAUSAL), *filled(ONLY_32)],
    ("scale_d_model, fill_too_high", "that other scores reach"): [SCALED, *IN_REACH],
    ("scale_d_model", "x (1, 3"): [SCALED, (START, "+        assert B * T > 2\n")],
    ("mask_untried", "a BlockMask is wanted"): [(START, STRICT)],
    ("right", "`bias` (-inf added"): [("mask=None", "mask=None, bias=None"), *BIASED],
    ("mask_untried", "(`encoder_mask`)"): [("mask=None", "mask=None, encoder_mask=None")],
}


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", FIRST_THAT_DIFFERS, ids=lambda name: name[0])
def test_a_diagnosis_comes_from_the_first_thing_that_differs(name):
    found, words = name
    comparison = compare(changed(*FIRST_THAT_DIFFERS[name])(24, H))
    assert comparison.found == found and words in str(comparison), comparison


def test_only_what_ran_is_said_to_be_tried():
    late = changed(*scores("scores = scores * (1 + (T >= 10))"))
    found = compare(late(D, H))
    tried, not_tried = found.tried
    assert found.found == "partly" and "for B = 1 and T = 10" in found.seen[0]
    assert "equal tokens" not in tried and "masks" not in tried
    assert "equal tokens" in not_tried and "masks" in not_tried
    whole = compare(right()(D, H))
    assert "197" in whole.tried[0] and "1025" in whole.tried[0]
    assert "scores up to 30,000 in float32" in whole.tried[0]


def test_the_first_line_says_what_where_and_the_smallest_call():
    found = compare(shipped.bug("mask_dropped").build(D, H))
    assert found.verdict.startswith(
        "WRONG mask_dropped: `mask` (T, T); smallest call that fails: x (1, 2"
    )
    assert str(found).splitlines()[-1].startswith("- Not tried: ")
    assert compare(right()(D, H)).verdict.startswith(
        "RIGHT: multi-head attention, not causal, takes `mask`"
    )


@pytest.mark.one_in(8)
@pytest.mark.parametrize("change", WRONG_SOMEWHERE.values(), ids=WRONG_SOMEWHERE)
def test_what_is_wrong_somewhere_is_not_right(change):
    torch.manual_seed(7)
    found = compare(changed(*change)(D, H))
    assert found.found not in ("right", ""), found
    assert found.found != "partly" or found.seen[0].startswith("Fails ")


@pytest.mark.one_in(16)  # test_shipped.py has all of them recognised at another size
@pytest.mark.parametrize(
    "bug", [b for b in shipped.bugs().values() if b.base == "Attention"], ids=lambda bug: bug.name
)
def test_the_five_lines_find_every_published_mistake(bug):
    found = compare(bug.build(64, 4), causal=False, true_means="blocked")
    assert found.found == {"dropout_in_evaluation": "drawn"}.get(bug.name, bug.name), found


HANDED = {
    "forward": lambda m, x: m.forward(x, causal_mask(x.shape[1])),
    "keyword": lambda m, x: m(x, mask=causal_mask(x.shape[1])),
    "method": lambda m, x: m.attend(x, causal_mask(x.shape[1])),
    "tuple": lambda m, x: m.of_both((x, causal_mask(x.shape[1]))),
    "dict": lambda m, x: m.of_named({"x": x, "mask": causal_mask(x.shape[1])}),
}


def with_doors(base):
    class Doors(base):
        def attend(self, x, mask=None):
            return base.forward(self, x, mask)

        def of_both(self, both):
            return base.forward(self, *both)

        def of_named(self, named):
            return base.forward(self, **named)

    return Doors


@pytest.mark.one_in(8)
@pytest.mark.parametrize(
    ("name", "by"),
    [
        *product(("right", "mask_inverted"), HANDED),
        ("mask_dropped", "dict"),
        ("mask_of_the_first", "tuple"),
    ],
)
def test_a_mask_is_seen_however_it_is_handed_over(name, by):
    base = right() if name == "right" else shipped.bug(name).build
    assert compare(with_doors(base)(D, H), HANDED[by]).found == name


CONVENTIONS = {  # how the fill reads the mask → what is told
    "mask": "True = blocked",
    "~mask": "True = keep",
    "mask == 0": "True = keep",
    "mask < 0.5": "True = keep",
    "mask[:, None]": "(B, T, T)",
    "mask[:, None, None]": "(B, T)",
    "mask.permute(2, 0, 1)[:, None]": "(T, T, B)",
    "(torch.arange(T) >= mask[:, None])[:, None, None]": "lengths",
}


@pytest.mark.one_in(6)
@pytest.mark.parametrize("reads", CONVENTIONS)
def test_a_convention_is_found_by_what_it_does(reads):
    odd = changed((START, f"+        mask = None if mask is None else {reads}\n"))
    found = compare(odd(D, H))
    assert found.found == "right", found
    assert CONVENTIONS[reads] in str(found).splitlines()[0]


@pytest.mark.long  # test_the_command_takes_… gives contracts, too
def test_a_contract_is_held():
    module = right()(D, H)
    found = compare(module, causal=True)
    assert found.found == "not_causal" and "token 0 sees token 1" in found.verdict
    assert compare(module, causal=False).found == "right"
    causal = compare(module, HANDED["keyword"], causal=False)
    assert causal.found == "causal"
    assert compare(module, HANDED["keyword"], causal=True).found == "right"
    assert compare(module, true_means="keep").found == "mask_inverted"

    for name in ("causal", "autoregressive", "mask_future", "masked"):
        claiming = right()(D, H)
        setattr(claiming, name, True)  # and never read
        found = compare(claiming)
        assert found.found == "not_causal" and f"Its `{name}` is True" in str(found)
    assert compare(claiming, causal=False).found == "right"


class InHeads(right()):
    def heads(self, x):
        layers = self.w_q, self.w_k, self.w_v
        return (layer(x).unflatten(-1, (H, -1)).transpose(1, 2) for layer in layers)

    def scores(self, x):
        q, k, v = self.heads(x)
        return q @ k.mT / math.sqrt(D // H), v


class OwnDropout(InHeads):
    def forward(self, x, mask=None):
        scores, v = self.scores(x)
        weights = (
            scores.softmax(-1) if mask is None else scores.masked_fill(mask, -1e30).softmax(-1)
        )
        if self.training:
            weights = weights * (torch.rand_like(weights) > 0.25) / 0.75
        return self.w_o((weights @ v).transpose(1, 2).flatten(2))


class Fused(InHeads):
    def forward(self, x, attn_mask=None, is_causal=False):
        p = 0.1 * self.training
        out = F.scaled_dot_product_attention(*self.heads(x), attn_mask, p, is_causal)
        return self.w_o(out.transpose(1, 2).flatten(2))


def with_a_weight_norm():
    module = right()(D, H)
    nn.utils.parametrizations.weight_norm(module.w_q)
    return module


class HeadByHead(InHeads):
    """With a dropout for every head, and a mask of no numbers for none."""

    def forward(self, x, mask=torch.ones(0, 0, dtype=torch.bool)):  # noqa: B008
        scores, v = self.scores(x)
        scores = scores.masked_fill(mask, -1e30) if len(mask) else scores
        each = zip(scores.softmax(-1).unbind(1), v.unbind(1), strict=True)
        heads = [F.dropout(weights, 0.1, self.training) @ values for weights, values in each]
        return self.w_o(torch.cat(heads, dim=-1))


class ForTwoAxes(InHeads):
    """Its mask (T, T) gets two axes, and one that has four gets six; a dropout is thrown away."""

    def forward(self, x, mask=None):
        scores, v = self.scores(x)
        if mask is not None:
            scores = scores.masked_fill(mask[None, None], -1e30)
        context = (scores.softmax(-1) @ v).transpose(1, 2)
        F.dropout(scores, 0.1, self.training)
        return self.w_o(context.reshape(x.shape))


class Queries(right()):
    """Padding asks nothing, and is asked nothing, by two masks."""

    def forward(self, x, query_mask=None, key_mask=None):
        y = super().forward(x, None if key_mask is None else key_mask[:, None, None])
        return y if query_mask is None else y.masked_fill(query_mask[..., None], 0.0)


class HeadsFirst(nn.Module):
    """Every weight, and every bias but the last, has an axis of heads."""

    def __init__(self):
        super().__init__()
        for letter in "QKV":
            self.register_parameter(f"W_{letter}", nn.Parameter(torch.randn(H, D, D // H)))
            self.register_parameter(f"b_{letter}", nn.Parameter(torch.zeros(H, D // H)))
        self.W_O, self.b_O = nn.Parameter(torch.randn(H, D // H, D)), nn.Parameter(torch.zeros(D))

    def forward(self, x, mask=None):
        q, k, v = (
            torch.einsum("btd,hdk->bhtk", x, getattr(self, f"W_{n}"))
            + getattr(self, f"b_{n}")[:, None]
            for n in "QKV"
        )
        out = F.scaled_dot_product_attention(q, k, v, None if mask is None else ~mask)
        return torch.einsum("bhtk,hkd->btd", out, self.W_O) + self.b_O


RIGHT = {
    "heads first": HeadsFirst,
    "masks of queries": lambda: Queries(D, H),
    "for two axes": lambda: ForTwoAxes(D, H),
    "a weight norm": with_a_weight_norm,
    "head by head": lambda: HeadByHead(D, H),
    "own dropout": lambda: OwnDropout(D, H),
    "fused": lambda: Fused(D, H),
    "dropout": lambda: changed(*weights("weights = F.dropout(weights, 0.2, self.training)"))(D, H),
    "a fill of -1e6": lambda: changed(*filled("scores = scores.masked_fill(mask, -1e6)"))(D, H),
    "the package's": lambda: mha_lesson.MultiHeadAttention(D, H),
}


@pytest.mark.one_in(4)
@pytest.mark.parametrize("make", RIGHT.values(), ids=RIGHT)
def test_a_right_class_of_any_style_is_right(make):
    torch.manual_seed(7)
    found = compare(make())
    assert found.found == "right", found


def test_what_is_frozen_or_neutral_accuses_nobody():
    class Frozen(InHeads):
        def __init__(self):
            super().__init__(D, H)
            self.scale = nn.Parameter(torch.tensor((D // H) ** -0.5), requires_grad=False)
            self.register_buffer("slopes", torch.zeros(H, 1, 1))

        def forward(self, x):
            q, k, v = self.heads(x)
            places = torch.arange(x.shape[1]).to(x)
            scores = q @ k.mT * self.scale + self.slopes * (places - places[:, None])
            return self.w_o((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))

    found = compare(Frozen())
    assert found.found == "right" and "other numbers in slopes" in str(found)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("batch_first", [True, False])
def test_torchs_own_is_right_with_its_masks(batch_first):
    def call(module, x):
        x = x if batch_first else x.transpose(0, 1)
        out, _ = module(x, x, x)
        return out if batch_first else out.transpose(0, 1)

    found = compare(nn.MultiheadAttention(D, H, dropout=0.1, batch_first=batch_first), call)
    assert found.found == "right", found
    told = " ".join(found.masks)
    assert all(f"`{name}`" in told for name in ("key_padding_mask", "attn_mask", "is_causal"))
    assert "In training it drops 0.1 of the weights." in found.seen


def test_scores_are_told_as_scores():
    found = compare(changed(*scores("scores = scores.clamp(-50, 50)"))(D, H))
    assert found.found == "partly" and 45 < found.below < 100


def test_the_command_takes_the_contract_and_has_an_exit_status(tmp_path, capsys):
    (tmp_path / "their_attention.py").write_text(
        "from mha_course import shipped\n"
        "good = lambda: shipped.right()(12, 3)\n"
        "bad = lambda: shipped.bug('no_w_o').build(12, 3)\n"
    )
    layers = "w_q=w_q,w_k=w_k,w_v=w_v,w_o=w_o"
    for options, status in {
        ("good", "--causal", "no", "--true-means", "blocked", "--layers", layers): 0,
        ("good", "--causal", "yes"): 1,
        ("good", "--true-means", "keep"): 1,
        ("bad",): 1,
        ("bad", "--ignore", "no_w_o"): 0,
        ("good", "--layers", "w_q"): 2,
        ("none",): 2,
        ("good", "--n-heads", "5"): 2,
    }.items():
        name, *rest = options
        assert command.main([f"{tmp_path / 'their_attention.py'}:{name}", *rest]) == status, options
    output = capsys.readouterr()
    assert output.out.startswith("RIGHT: ") and "n_heads must divide" in output.err
