"""The layer at home in others' code: devices, dtypes, files of other classes, exports."""

import warnings

import numpy as np
import pytest
import torch
from torch import nn
from torch.testing import assert_close

from mha_lesson import GroupedQueryAttention, MultiHeadAttention, padding_mask

pytestmark = pytest.mark.plain
D_MODEL, H, D_K = 14, 3, 5
WIDTH = H * D_K
MAKERS = {
    "taught": lambda **how: MultiHeadAttention(D_MODEL, H, d_k=D_K, **how),
    "grouped": lambda **how: GroupedQueryAttention(D_MODEL, H, 1, d_k=D_K, **how),
}


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_device_and_dtype_as_every_layer_has_them(make):
    for dtype in (torch.float64, torch.bfloat16):
        assert {p.dtype for p in make(dtype=dtype).parameters()} == {dtype}
    assert all(p.is_meta for p in make(device="meta").parameters())
    sizes = {"n_kv_heads": 1} if make is MAKERS["grouped"] else {}
    skipped = nn.utils.skip_init(type(make()), 6, 3, **sizes, dtype=torch.float64)
    assert not any(p.is_meta or p.dtype != torch.float64 for p in skipped.parameters())
    for how, words in (
        ({"dtype": torch.int64}, "dtype must be a floating-point dtype; got dtype torch.int64"),
        ({"dtype": "float"}, "dtype must be a floating-point dtype; got str 'float'"),
        ({"device": "cud"}, "device must be a device of this machine; got 'cud'"),
    ):
        with pytest.raises((TypeError, ValueError), match=words):
            make(**how)


def test_a_list_of_lengths_has_values_on_any_default_device():
    with torch.device("meta"):
        mask = padding_mask([3, 5])
    assert mask.is_meta and mask.shape == (2, 1, 1, 5)


# Files of other classes

SEPARATE = (  # as they are called in public classes
    "W_query W_key W_value out_proj",
    "q_proj k_proj v_proj o_proj",
    "to_q to_k to_v to_out.0",
    "self.query self.key self.value output.dense",
    "q_lin k_lin v_lin out_lin",
    "w_q w_k w_v w_o",
)


def named(names, tensors):
    return dict(zip(names.split(), tensors, strict=True))


def layouts(q, k, v, o, biases):
    """What must be said of a file, the file, and which of the four biases are in it."""
    fused, b_fused = torch.cat((q, k, v)), torch.cat(biases[:3])
    mask = torch.ones(9, 9).tril()
    yield (
        "fused, without",
        named("attn.c_attn.weight attn.c_proj.weight attn.bias", (fused, o, mask[None, None])),
        0,
    )
    yield "fused, turned, without", named("c_attn.weight c_proj.weight", (fused.T, o.T)), 0
    names = "in_proj_weight in_proj_bias out_proj.weight out_proj.bias"
    yield "fused, with ", named(names, (fused, b_fused, o, biases[3])), 4
    names = "q_proj_weight k_proj_weight v_proj_weight in_proj_bias out_proj.weight"
    yield "separate, with ", named(names, (q, k, v, b_fused, o)), 3
    for names in map(str.split, SEPARATE):
        weights = {f"{n}.weight": x for n, x in zip(names, (q, k, v, o), strict=True)}
        yield "separate, without", weights | {"mask": mask}, 0
        more = {f"{n}.bias": x for n, x in zip(names, biases, strict=True)}
        yield "separate, with ", weights | more, 4
    cut = [(w.view(H, D_K, -1), b.view(H, D_K)) for w, b in zip((q, k, v), biases, strict=False)]
    tall = {f"W_{role}": w.mT for role, (w, _) in zip("QKV", cut, strict=True)}
    tall |= {f"b_{role}": b for role, (_, b) in zip("QKV", cut, strict=True)}
    more = {"W_O": o.T.reshape(H, D_K, D_MODEL), "b_O": biases[3]}
    yield "by head, with ", tall | more, 4
    for said, kinds in (("without", ["weight"]), ("with ", ["weight", "bias"])):
        of_heads = {"heads.0.tril": mask, "proj.weight": o}
        for role, tensors in zip(("query", "key", "value"), cut, strict=True):
            for i in reversed(range(H)):
                for kind, of in zip(kinds, tensors, strict=False):
                    of_heads[f"heads.{i}.{role}.{kind}"] = of[i]
        yield f"by head, {said}", of_heads, 3 * (len(kinds) - 1)


def test_files_of_other_layouts_are_read_and_named():
    *matrices, o = (torch.randn(n, m) for n, m in [(WIDTH, D_MODEL)] * 3 + [(D_MODEL, WIDTH)])
    biases = [torch.randn(n) for n in (WIDTH, WIDTH, WIDTH, D_MODEL)]
    x, bare = torch.randn(2, 7, D_MODEL), MAKERS["taught"](bias=False)
    for said, state, n_biases in layouts(*matrices, o, biases):
        mha, expected = MAKERS["taught"](), MAKERS["taught"]()
        assert mha.load_layout(state).startswith(said.strip())
        in_use = [b * (i < n_biases) for i, b in enumerate(biases)]
        rows = torch.cat(matrices), torch.cat(in_use[:3]), o, in_use[3]
        expected.load_state_dict(named("w_qkv.weight w_qkv.bias w_o.weight w_o.bias", rows))
        assert_close(mha(x, causal=True), expected(x, causal=True))
        if n_biases:
            with pytest.raises(ValueError, match=r"bias of .* must be none"):
                bare.load_layout(state)
        else:
            bare.load_layout(state)
            assert_close(bare(x, causal=True), expected(x, causal=True))


def test_a_fused_weight_that_is_square_is_read_beside_its_output():
    """Of 3·h·d_k = d_model both ways to read it would fit."""
    fused, o, x = torch.randn(12, 12), torch.randn(12, 4), torch.randn(2, 5, 12)
    expected = MultiHeadAttention(12, 2, d_k=2, bias=False)
    expected.load_state_dict(named("w_qkv.weight w_o.weight", (fused, o)))
    for said, weights in (("fused, with", (fused, o)), ("fused, turned", (fused.T, o.T))):
        mha = MultiHeadAttention(12, 2, d_k=2, bias=False)
        assert mha.load_layout(named("c_attn.weight c_proj.weight", weights)).startswith(said)
        assert_close(mha(x), expected(x))


def test_other_files_are_refused_by_what_they_are():
    mha, square = MultiHeadAttention(6, 3), torch.zeros(6, 6)
    good = named("q.weight k.weight v.weight o.weight", [square] * 4)
    before = {name: x.clone() for name, x in mha.state_dict().items()}
    for change, words in (
        (
            {"k.weight": torch.zeros(2, 6)},
            r"read as separate, .* weight of k must be \\(6, 6\\), and is",
        ),
        ({"linears.0.weight": square}, "hold one attention layer.*got 'linears.0.weight'"),
        ({"other.q.weight": square}, "got 'other.q.weight', another thing or one of these again"),
        ({"query_key_value.weight": torch.zeros(18, 6)}, "got 'query_key_value.weight'"),
        ({"v.weight": 3}, "a Tensor; got int 3"),
        ({"v.weight": square.long()}, "v.weight'] must be a floating-point"),
        ({"v.weight": square.to_sparse()}, "v.weight'] must be a dense"),
        ({"v.weight": square.to("meta")}, "must hold values; v is on the meta device"),
        ({5: square}, "each name in state_dict must be a string; got int 5"),
        ({"heads.1.v.weight": square[:2]}, "heads of one size; v has several"),
    ):
        with pytest.raises((TypeError, ValueError), match=words.replace("\\\\", "\\")):
            mha.load_layout(good | change)
    with pytest.raises(ValueError, match=r"got weights of \['k', 'o', 'q'\]"):
        mha.load_layout({name: x for name, x in good.items() if name != "v.weight"})
    assert all(torch.equal(x, before[name]) for name, x in mha.state_dict().items())


def test_subclasses_are_made_from_pytorchs_module_or_refused():
    class Gated(MultiHeadAttention):
        def __init__(self, *sizes, **how):
            super().__init__(*sizes, **how)
            self.gate = nn.Parameter(torch.ones(1))

    class Other(MultiHeadAttention):
        def __init__(self, config):
            super().__init__(config.d_model, config.n_heads)

    theirs, x = nn.MultiheadAttention(6, 2, batch_first=True), torch.randn(2, 5, 6)
    made = Gated.from_torch(theirs)
    assert type(made) is Gated and made.gate == 1
    assert_close(made(x), theirs(x, x, x)[0])
    with pytest.raises(TypeError, match=r"^Other must be made by \(d_model, n_heads"):
        Other.from_torch(theirs)


# Exports


class Called(nn.Module):
    """A layer and how it is called, for those who trace modules."""

    def __init__(self, layer, **how):
        super().__init__()
        self.layer, self.how = layer.eval(), how

    def forward(self, x, mask):
        return self.layer(x, mask=mask, **self.how)


def batches():
    """The example has no row without a key; what follows has, and other sizes."""
    for lengths in ([7, 4], [3, 0], [11, 0, 5]):
        T = max(7, *lengths)
        yield torch.randn(len(lengths), T, D_MODEL), padding_mask(lengths, T)


def called_layers():
    """Each layer as it may be called, an example, and others to try it with."""
    for kind, how in CALLS:
        yield Called(MAKERS[kind](), **how), *batches()


CALLS = [
    (kind, how)
    for kind, ways in (("taught", ({}, {"causal": True})), ("grouped", ({},)))
    for way in ways
    for how in (way, way | {"return_weights": True})
]


@torch.no_grad()
def test_what_is_traced_with_one_mask_serves_another():
    for called, first, *others in called_layers():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of sizes that become constants, and of its age
            traced = torch.jit.trace(called, first, check_trace=False)
        for given in others:
            assert_close(traced(*given), called(*given))


AXES = {0: "B", 1: "T"}, {0: "B", 3: "T"}  # of x and mask


def sizes():
    """What B and T may be, for exporters."""
    dims = {name: torch.export.Dim(name, min=2, max=64) for name in "BT"}
    return [{axis: dims[name] for axis, name in given.items()} for given in AXES]


@pytest.mark.long  # imports PyTorch's compiler
@torch.no_grad()
def test_one_exported_graph_serves_any_batch_and_length():
    for called, first, *others in called_layers():
        graph = torch.export.export(called, first, dynamic_shapes=sizes(), strict=False).module()
        for given in others:
            assert_close(graph(*given), called(*given))


@pytest.mark.long  # minutes, and libraries of a maintainer's
@pytest.mark.parametrize("dynamo", [True, False], ids=["dynamo", "older"])
def test_both_onnx_exporters_give_what_the_layer_gives(tmp_path, dynamo):
    onnxruntime = pytest.importorskip("onnxruntime", reason="onnx is a maintainer's dependency")
    path = tmp_path / "layer.onnx"
    for called, first, *others in called_layers():
        if dynamo:
            which = {"dynamic_shapes": sizes()}
        else:
            which = {"dynamic_axes": dict(zip(("x", "mask"), AXES, strict=True))}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            which |= {"input_names": ["x", "mask"], "dynamo": dynamo, "verbose": False}
            torch.onnx.export(called, first, path, **which)
        session = onnxruntime.InferenceSession(path)
        for x, mask in (first, *others):
            found = session.run(None, {"x": x.numpy(), "mask": mask.numpy()})
            wanted = called(x, mask)
            for ours, theirs in zip(found, wanted if len(found) > 1 else [wanted], strict=True):
                np.testing.assert_allclose(ours, theirs.detach(), atol=1e-5)
