"""rotate (16): right in many styles, and wrong."""

import math

import torch

from answers import slips

EXERCISE = "rotate"


def llama_style(x, positions):
    d = x.shape[-1]
    inv_freq = 1.0 / (10000 ** (torch.arange(0, d, 2, dtype=torch.float64, device=x.device) / d))
    emb = torch.outer(positions.double(), inv_freq).repeat(1, 2)
    turned = torch.cat((-x[..., d // 2 :], x[..., : d // 2]), -1)
    return (x * emb.cos() + turned * emb.sin()).to(x.dtype)


def pair_by_pair(x, positions):
    d = x.shape[-1]
    out = torch.empty_like(x)
    for i in range(d // 2):
        angle = positions.double() * 10000.0 ** (-2 * i / d)
        R = torch.stack(
            (
                torch.stack((angle.cos(), -angle.sin()), -1),
                torch.stack((angle.sin(), angle.cos()), -1),
            ),
            -2,
        )
        pair = x[..., [i, i + d // 2]].double()
        out[..., [i, i + d // 2]] = (R @ pair[..., None])[..., 0].to(x.dtype)
    return out


def with_complex_numbers(x, positions):
    wide = x.double()
    a, b = wide.chunk(2, dim=-1)
    i = torch.arange(a.shape[-1], device=x.device).double()
    angle = positions.double()[:, None] * torch.exp(-math.log(10_000) * 2 * i / x.shape[-1])
    z = torch.complex(a, b) * torch.polar(torch.ones_like(angle), angle)
    return torch.cat((z.real, z.imag), dim=-1).to(x.dtype)


def as_in_llama(x, positions):
    d = x.shape[-1]
    inverse = 1.0 / (10000 ** (torch.arange(0, d, 2, device=x.device).float() / d))
    freqs = torch.outer(positions.float(), inverse)
    emb = torch.cat((freqs, freqs), dim=-1)
    x1, x2 = x[..., : d // 2], x[..., d // 2 :]
    return (x * emb.cos() + torch.cat((-x2, x1), dim=-1) * emb.sin()).to(x.dtype)


def _angles(x, positions, base=10_000.0):
    half = x.shape[-1] // 2
    i = torch.arange(half, device=x.device, dtype=torch.float64)
    return positions[:, None].double() * base ** (-i / half)


def rotate_by_matrix(x, positions):
    half = x.shape[-1] // 2
    t = _angles(x, positions)
    c, s = torch.diag_embed(t.cos()), torch.diag_embed(t.sin())
    R = torch.cat([torch.cat([c, -s], -1), torch.cat([s, c], -1)], -2).to(x.dtype)
    return (R @ x[..., None])[..., 0]


def rotate_matrices(x, positions):
    half = x.shape[-1] // 2
    i = torch.arange(half, device=x.device, dtype=torch.float64)
    ang = positions.double()[:, None] / 10_000.0 ** (2 * i / x.shape[-1])
    turn = torch.stack((ang.cos(), -ang.sin(), ang.sin(), ang.cos()), -1).unflatten(-1, (2, 2))
    pairs = x.double().unflatten(-1, (2, half))
    return torch.einsum("tirc,...tci->...tri", turn, pairs).flatten(-2).to(x.dtype)


def rotate_matrices_2(x, positions):
    half = x.shape[-1] // 2
    i = torch.arange(half, device=x.device, dtype=torch.float64)
    angle = positions.double()[:, None] * torch.exp(-i / half * math.log(10000.0))
    M = torch.stack((angle.cos(), -angle.sin(), angle.sin(), angle.cos()), -1)
    M = M.unflatten(-1, (2, 2))
    pairs = x.double().unflatten(-1, (2, half)).movedim(-2, -1)
    turned = (M @ pairs[..., None])[..., 0]
    return turned.movedim(-1, -2).flatten(-2).to(x.dtype)


def rotate_in_place(x, positions):
    half = x.shape[-1] // 2
    i = torch.arange(half, device=x.device, dtype=torch.float64)
    angle = positions[:, None] * 10_000.0 ** (-i / half)
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    a, b = x[..., :half].clone(), x[..., half:].clone()
    x[..., :half] = a * cos - b * sin
    x[..., half:] = a * sin + b * cos
    return x


def rotate_pair_by_pair(x, positions):
    d_k = x.shape[-1]
    first, second = [], []
    for i in range(d_k // 2):
        angle = positions.double() * 10_000.0 ** (-2 * i / d_k)
        c, s = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
        first.append(x[..., i] * c - x[..., i + d_k // 2] * s)
        second.append(x[..., i] * s + x[..., i + d_k // 2] * c)
    return torch.stack(first + second, dim=-1)


@slips("neighbours", "error:error_RuntimeError")
def rotate_complex_4(x, positions):
    d = x.shape[-1]
    freqs = 1.0 / 10000 ** (torch.arange(0, d, 2, device=x.device)[: d // 2] / d)
    ang = torch.outer(positions, freqs).to(x.dtype)
    cis = torch.polar(torch.ones_like(ang), ang)
    xc = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(xc * cis).flatten(-2).to(x.dtype)
