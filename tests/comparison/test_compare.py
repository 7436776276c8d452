"""*Right* is said of what was tried: classes wrong somewhere, and right ones of all styles."""

import math
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
    "a large batch": (("return self.w_o(context)",
                       "return self.w_o(context + (B * T > 32) * (B > 1) * context.mean(0))"),),
    "as many sequences as tokens": scores("scores = scores * (1 + (B == T and T > 1))"),
    "as many tokens as heads": scores("scores = scores * (1 + (B == 2 and T == h))"),
    "a clamp": scores("scores = scores.clamp(-50, 50)"),
    "an input that is not contiguous": scores("scores = scores * (1 + (not x.is_contiguous()))"),
    "its input": ((END, f"        x.mul_(2)\n{END}"),),
    "dropout on scores": scores("scores = F.dropout(scores, 0.1, self.training)"),
    "dropout twice": weights(
        "weights = F.dropout(F.dropout(weights, 0.1, self.training), 0.1, self.training)"
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
    "a second call": ((START, "+        self.n = getattr(self, 'n', 0) + 1\n"),
                      (SCORES, "+        scores = scores * (1 + (self.n > 40))\n")),
    "a mask of the last call": (
        (START, "+        self.held = mask = getattr(self, 'held', mask)\n"),
    ),
    "a mask changed in place": filled(f"{FILL}\n            mask.zero_()"),
    "a mask of many tokens": filled(FILL.replace("mask,", "mask & (T < 33),")),
    "a mask in training": ((START, "+        mask = None if self.training else mask\n"),),
    "a mask that leaks a little": filled("scores = scores.masked_fill(mask, -4.0)"),
    "a mask that leaks less": filled("scores = scores.masked_fill(mask, -20.0)"),
    "masks of other sequences": filled("scores = scores.masked_fill(mask.roll(1, 0), -1e9)"),
    "a mask of one head": filled("scores[:, 0] = scores.masked_fill(mask, -1e9)[:, 0]"),
    "a mask of all keys but the last": filled(
        FILL.replace("mask,", "mask & (torch.arange(T) < T - 1),")
    ),
    "a mask filled and thrown away": filled("scores.masked_fill(mask, -1e9)"),
}  # fmt: skip


@pytest.mark.one_in(8)
@pytest.mark.parametrize("change", WRONG_SOMEWHERE.values(), ids=WRONG_SOMEWHERE)
def test_what_is_wrong_somewhere_is_not_right(change):
    torch.manual_seed(7)
    found = compare(changed(*change)(D, H))
    assert found.found not in ("right", ""), found


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
    [*product(("right", "mask_inverted"), HANDED), ("mask_dropped", "dict"),
     ("mask_of_the_first", "tuple")],
)  # fmt: skip
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


def test_added_masks_are_found_and_rows_without_a_key_told():
    added = changed(*filled("scores = scores + mask"))
    found = compare(added(D, H))
    assert found.found == "right" and "-inf added to the scores (T, T)" in str(found)
    assert "a row without a key gives NaN" in str(found)


@pytest.mark.long  # test_the_command_takes_… gives contracts, too
def test_a_contract_is_held():
    module = right()(D, H)
    found = compare(module, causal=True)
    assert found.found == "not_causal" and "not causal: token 3 sees token 7" in str(found)
    assert compare(module, causal=False).found == "right"
    causal = compare(module, HANDED["keyword"], causal=False)
    assert causal.found == "causal" and str(causal).startswith("It is causal")
    assert compare(module, HANDED["keyword"], causal=True).found == "right"
    assert compare(module, true_means="keep").found == "mask_inverted"
    assert str(compare(module)).startswith("Not causal, takes `mask` (True = blocked (T, T), ")

    class Claiming(right()):
        causal = True

    claiming = Claiming(D, H)
    claiming.causal = True  # and never read
    assert compare(claiming).found == "not_causal"
    assert compare(claiming, causal=False).found == "right"


class Flagged(right()):
    """With a flag that is read, and one that is not."""

    def forward(self, x, mask=None, causal=False, *, is_causal=False):
        later = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
        return super().forward(x, later if causal and mask is None else mask)


def test_flags_are_tried():
    found = compare(Flagged(D, H))
    assert found.found == "mask_dropped" and "That is `is_causal`." in found.seen
    assert "`causal` (True = causal)" in str(found.masks)


def test_a_mask_that_only_says_causal_is_named():
    class Hinted(right()):
        def forward(self, x, mask=None):
            later = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
            return super().forward(x, None if mask is None else later)

    assert compare(Hinted(D, H)).found == "mask_made_causal"


def test_a_mask_that_cannot_be_tried_is_not_right():
    class Strict(right()):
        def forward(self, x, mask=None):
            if mask is not None:
                raise TypeError("a BlockMask is wanted")
            return super().forward(x)

    found = compare(Strict(D, H))
    assert found.found == "mask_untried" and "a BlockMask is wanted" in str(found)
    assert "changed in" not in str(found)


def test_what_is_frozen_or_neutral_accuses_nobody():
    class Frozen(right()):
        def __init__(self):
            super().__init__(D, H)
            self.scale = nn.Parameter(torch.tensor((D // H) ** -0.5), requires_grad=False)
            self.register_buffer("slopes", torch.zeros(H, 1, 1))

        def forward(self, x):
            q, k, v = (w(x).unflatten(-1, (H, -1)).transpose(1, 2)
                       for w in (self.w_q, self.w_k, self.w_v))  # fmt: skip
            places = torch.arange(x.shape[1]).to(x)
            scores = q @ k.mT * self.scale + self.slopes * (places - places[:, None])
            return self.w_o((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))

    found = compare(Frozen())
    assert found.found == "right" and "other numbers in slopes" in str(found)


class OwnDropout(right()):
    def forward(self, x, mask=None):
        q, k, v = (w(x).unflatten(-1, (H, -1)).transpose(1, 2)
                   for w in (self.w_q, self.w_k, self.w_v))  # fmt: skip
        scores = q @ k.mT / math.sqrt(D // H)
        weights = scores.softmax(-1)
        if mask is not None:
            weights = scores.masked_fill(mask, -1e30).softmax(-1)
        if self.training:
            weights = weights * (torch.rand_like(weights) > 0.25) / 0.75
        return self.w_o((weights @ v).transpose(1, 2).flatten(2))


class Fused(right()):
    def forward(self, x, attn_mask=None, is_causal=False):
        q, k, v = (w(x).unflatten(-1, (H, -1)).transpose(1, 2)
                   for w in (self.w_q, self.w_k, self.w_v))  # fmt: skip
        p = 0.1 * self.training
        out = F.scaled_dot_product_attention(q, k, v, attn_mask, p, is_causal)
        return self.w_o(out.transpose(1, 2).flatten(2))


def with_a_weight_norm():
    module = right()(D, H)
    nn.utils.parametrizations.weight_norm(module.w_q)
    return module


class HeadByHead(right()):
    """With a dropout for every head, and a mask of no numbers for none."""

    def forward(self, x, mask=torch.ones(0, 0, dtype=torch.bool)):  # noqa: B008
        q, k, v = (w(x).unflatten(-1, (H, -1)).unbind(2) for w in (self.w_q, self.w_k, self.w_v))
        heads = []
        for one in range(H):
            scores = q[one] @ k[one].mT / math.sqrt(D // H)
            weights = (
                scores.masked_fill(mask, -1e30).softmax(-1) if len(mask) else scores.softmax(-1)
            )
            heads.append(F.dropout(weights, 0.1, self.training) @ v[one])
        return self.w_o(torch.cat(heads, dim=-1))


class ForTwoAxes(right()):
    """Its mask (T, T) gets two axes, and one that has four gets six; a dropout is thrown away."""

    def forward(self, x, mask=None):
        q, k, v = (w(x).unflatten(-1, (H, -1)).transpose(1, 2)
                   for w in (self.w_q, self.w_k, self.w_v))  # fmt: skip
        scores = q @ k.mT / math.sqrt(D // H)
        if mask is not None:
            scores = scores.masked_fill(mask[None, None], -1e30)
        context = (scores.softmax(-1) @ v).transpose(1, 2)
        F.dropout(scores, 0.1, self.training)
        return self.w_o(context.reshape(x.shape))


RIGHT = {
    "for two axes": lambda: ForTwoAxes(D, H),
    "a weight norm": with_a_weight_norm,
    "head by head": lambda: HeadByHead(D, H),
    "own dropout": lambda: OwnDropout(D, H),
    "fused": lambda: Fused(D, H),
    "dropout": lambda: changed(*weights("weights = F.dropout(weights, 0.2, self.training)"))(D, H),
    "the package's": lambda: mha_lesson.MultiHeadAttention(D, H),
}


@pytest.mark.one_in(4)
@pytest.mark.parametrize("make", RIGHT.values(), ids=RIGHT)
def test_a_right_class_of_any_style_is_right(make):
    torch.manual_seed(7)
    found = compare(make())
    assert found.found == "right", found


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


def test_the_command_takes_the_contract_and_the_layers(tmp_path):
    (tmp_path / "their_attention.py").write_text(
        "from mha_course import shipped\nmake = lambda: shipped.right()(12, 3)\n"
    )
    target = f"{tmp_path / 'their_attention.py'}:make"
    layers = ["--layers", "w_q=w_q,w_k=w_k,w_v=w_v,w_o=w_o"]
    for options, status in [
        (["--causal", "no", "--true-means", "blocked"], 0), (["--causal", "yes"], 1),
        (["--true-means", "keep"], 1), (layers, 0), (["--layers", "w_q"], 2),
    ]:  # fmt: skip
        assert command.main([target, *options]) == status
