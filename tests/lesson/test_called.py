"""Every path calls its layers: hooks, adapters and the like around `w_qkv` or `w_o` take effect."""

import copy
import warnings
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.ao.quantization import quantize_dynamic
from torch.nn.modules.module import register_module_forward_hook
from torch.nn.utils import parametrizations, prune, spectral_norm, weight_norm
from torch.testing import assert_close

from mha_lesson import GroupedQueryAttention, KVCache, MultiHeadAttention
from mha_lesson.attention import textbook_attention

B, D_MODEL, H, H_KV, D_K = 2, 14, 6, 3, 5
TAUGHT = MultiHeadAttention(D_MODEL, H, d_k=D_K)
GROUPED = GroupedQueryAttention(D_MODEL, H, H_KV, d_k=D_K, bias=True)


class Adapter(nn.Module):
    """Neither an nn.Linear, nor with a weight of its own."""

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        self.layer, self.more = layer, nn.Linear(layer.in_features, layer.out_features)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) + self.more(x)


class Cubed(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) ** 3


class ScaledAsAWhole(Tensor):
    """A weight with a product of its own, as quantised ones have: one scale for all its rows."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func is not F.linear:
            return super().__torch_function__(func, types, args, kwargs)
        x, weight, *bias = args
        weight = weight.as_subclass(Tensor)
        return func(x, weight / weight.abs().max(), *bias)


def scaled_as_a_whole(layer: nn.Linear) -> None:
    layer.weight = nn.Parameter(layer.weight.detach().as_subclass(ScaledAsAWhole))


def patched(layer: nn.Linear) -> None:
    own = layer.forward
    layer.forward = lambda x: 3 * own(x)


def remade(name: str, around: Callable) -> Callable[[nn.Linear], None]:
    """The weight is computed at the next call, from a parameter that has changed since."""

    def change(layer: nn.Linear) -> None:
        around(layer)
        with torch.no_grad():
            getattr(layer, name)[::3] += 1

    return change


def offloaded(layer: nn.Linear) -> None:
    """The weights are on the meta device, but for the call."""
    kept = {name: nn.Parameter(3 * x.detach()) for name, x in layer.named_parameters()}
    away = {name: nn.Parameter(x.to("meta")) for name, x in kept.items()}
    layer._parameters.update(away)
    layer.register_forward_pre_hook(lambda layer, _: layer._parameters.update(kept))
    layer.register_forward_hook(lambda layer, *_: layer._parameters.update(away))


def settled_norm(layer: nn.Linear) -> nn.Module:
    """As after some steps of training: its first vectors are random, and may divide by nearly 0."""
    normed = spectral_norm(layer, n_power_iterations=30).train()
    normed(torch.zeros(1, layer.in_features, dtype=layer.weight.dtype))
    return normed.eval()


AROUND: dict[str, Callable] = {
    "a hook": lambda layer: layer.register_forward_hook(lambda _, x, y: y**3),
    "a pre-hook": lambda layer: layer.register_forward_pre_hook(lambda _, x: (x[0] ** 3,)),
    "a backward hook": lambda layer: layer.register_full_backward_hook(
        lambda _, g, __: (3 * g[0],)
    ),
    "a backward pre-hook": lambda layer: layer.register_full_backward_pre_hook(
        lambda _, g: (3 * g[0],)
    ),
    "an adapter": Adapter,
    "another class": lambda layer: Cubed(layer.in_features, layer.out_features),
    "another forward": patched,
    "a weight of another class": scaled_as_a_whole,
    "pruned": remade("weight_orig", lambda layer: prune.l1_unstructured(layer, "weight", 0.5)),
    "a pruned bias": remade("bias_orig", lambda x: prune.random_unstructured(x, "bias", 0.5)),
    "an old spectral norm": remade("weight_orig", settled_norm),
    "an old weight norm": remade("weight_g", weight_norm),
    "a parametrised norm": remade("weight", parametrizations.spectral_norm),
    "offloaded": offloaded,
}


def changed_copy(module: nn.Module, names: str, around: str) -> nn.Module:
    """A copy with this around its layers of these names."""
    module = copy.deepcopy(module).double().eval()
    for name in names.split():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the old norms are deprecated, and in use
            new = AROUND[around](getattr(module, name))
        if isinstance(new, nn.Module):
            setattr(module, name, new.double())
    return module


def reference(module, query, key, value, causal):
    """The textbook's attention between two layers that are called on whole inputs."""
    h, h_kv = module.n_heads, getattr(module, "n_kv_heads", module.n_heads)
    ends = h * D_K, (h + h_kv) * D_K
    rows = [module.w_qkv(x).tensor_split(ends, -1)[i] for i, x in enumerate((query, key, value))]
    q, k, v = (x.unflatten(-1, (-1, D_K)).transpose(1, 2) for x in rows)
    k, v = (x.repeat_interleave(h // h_kv, dim=1) for x in (k, v))
    future = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool).triu(1) & causal
    return module.w_o(textbook_attention(q, k, v, future)[0].transpose(1, 2).flatten(2))


def paths(x, y, z):
    """Every path: the module, its three inputs, whether causal, and the call."""
    taught, grouped = [(x, x, x), (x, x, z), (x, y, y), (x, y, y + 1)], (x, x, x)
    for roles in taught:
        short = roles[:1] if roles[2] is roles[0] is roles[1] else roles
        yield TAUGHT, roles, False, lambda m, short=short, **how: m(*short, **how)
    yield TAUGHT, (x, x, x), True, lambda m, **how: m(x, causal=True, **how)
    yield TAUGHT, (x[:1], y[:1], y[:1]), False, lambda m, **how: as_batch(m(x[0], y[0], **how))
    yield GROUPED, grouped, True, lambda m, **how: m(x, **how)
    yield GROUPED, grouped, True, lambda m, **how: in_pieces(m, x, **how)


def as_batch(result):
    return result[None] if isinstance(result, Tensor) else (result[0][None], result[1])


def in_pieces(module, x, **how):
    cache = KVCache()
    found = [module(piece, cache, **how) for piece in x.split((2, 1, 4), dim=1)]
    return torch.cat([y[0] if how else y for y in found], dim=1)


@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize("names", ["w_qkv", "w_o"])
def test_what_stands_around_a_layer_counts_on_every_path(names, around):
    torch.manual_seed(1)
    x, y, z = (torch.randn(B, T, D_MODEL, dtype=torch.float64) for T in (7, 11, 7))
    x.requires_grad_()
    for bare, roles, causal, call in paths(x, y, z):
        module = changed_copy(bare, names, around)
        expected = reference(module, *roles, causal)
        (gradient,) = torch.autograd.grad(expected.square().sum(), x)
        plain = reference(copy.deepcopy(bare).double(), *roles, causal)
        (before,) = torch.autograd.grad(plain.square().sum(), x)
        assert not torch.allclose(gradient, before)
        nearly = {"rtol": 0, "atol": 1e-9 * gradient.abs().max().item()}  # a norm may make it large
        for how in ({}, {"return_weights": True}):
            result = call(module, **how)
            output = result if isinstance(result, Tensor) else result[0]
            assert_close(output, expected)
            assert_close(torch.autograd.grad(output.square().sum(), x)[0], gradient, **nearly)


def test_a_hook_on_all_modules_counts_on_every_path():
    x, y, z = (torch.randn(B, T, D_MODEL) for T in (7, 11, 7))
    for bare, _, _, call in paths(x, y, z):
        module = copy.deepcopy(bare)
        hook = register_module_forward_hook(
            lambda layer, _, out, mine=module.w_qkv: out**3 if layer is mine else None
        )
        found = call(module)
        hook.remove()
        module.w_qkv.register_forward_hook(lambda _, x, out: out**3)
        assert_close(found, call(module))


@pytest.mark.plain
@pytest.mark.parametrize("bare", [TAUGHT, GROUPED], ids=["taught", "grouped"])
def test_replaced_layers_run_or_are_refused(bare):
    x = torch.randn(B, 7, D_MODEL)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecated, and in use
        quantised = quantize_dynamic(bare, {nn.Linear}, torch.qint8)
    assert_close(quantised(x), quantised(x, return_weights=True)[0])
    assert_close(quantised(x), bare(x), atol=0.2, rtol=0)
    for name, layer, words in (
        ("w_qkv", nn.Identity(), r"w_qkv must give a tensor of shape \(2, 7, \d+\); it gave a"),
        ("w_qkv", nn.LSTM(D_MODEL, D_MODEL), "w_qkv must give a tensor .* it gave tuple"),
        ("w_o", nn.LSTM(H * D_K, D_MODEL), "w_o must give a tensor .* it gave tuple"),
    ):
        module = copy.deepcopy(bare)
        setattr(module, name, layer)
        with pytest.raises(ValueError, match=words):
            module(x)
    for wrong, words in ((x.long(), "must be a floating-point"), (x[..., :3], "d_model = 14 wide")):
        with pytest.raises((TypeError, ValueError), match=words):
            quantised(wrong)


def test_replaced_layers_are_not_copied_to_pytorchs_module():
    for name in ("w_qkv", "w_o"):
        for around in ("an adapter", "another class", "another forward"):
            mha = changed_copy(MultiHeadAttention(6, 2), name, around)
            with pytest.raises(ValueError, match=f"^{name} must be an nn.Linear"):
                mha.to_torch()
