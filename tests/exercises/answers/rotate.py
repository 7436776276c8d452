"""rotate (16): right in many styles, and wrong."""

import math
import torch

from answers import slips

EXERCISE = "rotate"


def halves_as_complex(x, positions):
    a, b = x.double().chunk(2, -1)
    speeds = torch.exp(
        -math.log(1e4)
        * torch.arange(a.shape[-1], device=x.device, dtype=torch.float64)
        / a.shape[-1]
    )
    z = torch.complex(a, b) * torch.exp(1j * (positions[:, None] * speeds))
    return torch.cat((z.real, z.imag), -1).to(x.dtype)


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


def in_halves(x, positions):
    half = x.shape[-1] // 2
    i = torch.arange(half, device=x.device, dtype=torch.float64)
    angle = positions[:, None] * 10_000.0 ** (-i / half)
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    a, b = x[..., :half], x[..., half:]
    return torch.cat((a * cos - b * sin, a * sin + b * cos), dim=-1)


def by_rotating_half(x, positions):
    d_k = x.shape[-1]
    speed = 1.0 / 10_000 ** (torch.arange(0, d_k, 2, device=x.device).float() / d_k)
    angle = torch.outer(positions.float(), speed)
    angle = torch.cat((angle, angle), dim=-1)
    first, second = x.chunk(2, dim=-1)
    turned = x.float() * angle.cos() + torch.cat((-second, first), dim=-1).float() * angle.sin()
    return turned.to(x.dtype) if x.dtype != torch.float64 else in_halves(x, positions)


def with_complex_numbers(x, positions):
    wide = x.double()
    a, b = wide.chunk(2, dim=-1)
    i = torch.arange(a.shape[-1], device=x.device).double()
    angle = positions.double()[:, None] * torch.exp(-math.log(10_000) * 2 * i / x.shape[-1])
    z = torch.complex(a, b) * torch.polar(torch.ones_like(angle), angle)
    return torch.cat((z.real, z.imag), dim=-1).to(x.dtype)


def turned(x, positions):
    half = x.shape[-1] // 2
    speed = 10_000.0 ** (-torch.arange(half, device=x.device, dtype=torch.float64) / half)
    angle = positions.to(torch.float64)[:, None] * speed
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


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


def rotate_half_style(x, positions):
    d = x.shape[-1]
    inv_freq = 1.0 / (10000 ** (torch.arange(0, d, 2, dtype=torch.float64, device=x.device) / d))
    angle = torch.outer(positions.double(), inv_freq)
    angle = torch.cat((angle, angle), dim=-1)
    x1, x2 = x.chunk(2, dim=-1)
    turned = torch.cat((-x2, x1), dim=-1)
    return (x * angle.cos() + turned * angle.sin()).to(x.dtype)


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


def rotate_as_complex(x, positions):
    half = x.shape[-1] // 2
    inv = 10000.0 ** (-torch.arange(half, device=x.device, dtype=torch.float64) / half)
    ang = positions.to(device=x.device, dtype=torch.float64)[:, None] * inv
    z = torch.complex(x[..., :half].double(), x[..., half:].double())
    z = z * torch.polar(torch.ones_like(ang), ang)
    return torch.cat([z.real, z.imag], dim=-1).to(x.dtype)


def rotate_as_complex_2(x, positions):
    half = x.shape[-1] // 2
    a, b = x.double().chunk(2, dim=-1)
    speed = 10_000.0 ** (-torch.arange(half, device=x.device).double() / half)
    turn = torch.polar(torch.ones_like(speed), positions[:, None] * speed)
    z = torch.complex(a.contiguous(), b.contiguous()) * turn
    return torch.cat((z.real, z.imag), dim=-1).to(x.dtype)


def rotate_pair_by_pair(x, positions):
    d_k = x.shape[-1]
    first, second = [], []
    for i in range(d_k // 2):
        angle = positions.double() * 10_000.0 ** (-2 * i / d_k)
        c, s = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
        first.append(x[..., i] * c - x[..., i + d_k // 2] * s)
        second.append(x[..., i] * s + x[..., i + d_k // 2] * c)
    return torch.stack(first + second, dim=-1)


@slips("error:broadcast_shapes")
def rotate_no_new_axis(x, positions):
    half = x.shape[-1] // 2
    speeds = 10_000.0 ** (-torch.arange(half, dtype=torch.float64, device=x.device) / half)
    angle = positions * speeds
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    a, b = x[..., :half], x[..., half:]
    return torch.cat((a * cos - b * sin, a * sin + b * cos), dim=-1)


@slips("precision_lost")
def angle_in_x_dtype(x, positions):
    half = x.shape[-1] // 2
    i = torch.arange(half, device=x.device, dtype=x.dtype)
    angle = positions[:, None].to(x.dtype) * 10_000.0 ** (-i / half)
    a, b = x[..., :half], x[..., half:]
    return torch.cat((a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()), -1)


@slips("fixed_dtype")
def float64_result(x, positions):
    d = x.shape[-1]
    inv_freq = 10000.0 ** (-torch.arange(0, d, 2, device=x.device, dtype=torch.float64) / d)
    emb = (positions[:, None] * inv_freq).repeat(1, 2)
    half = torch.cat((-x[..., d // 2 :], x[..., : d // 2]), dim=-1)
    return x * emb.cos() + half * emb.sin()


@slips("fixed_device")
def speeds_on_cpu(x, positions):
    h = x.size(-1) // 2
    inv = 10000.0 ** (-torch.arange(h, device="cpu", dtype=torch.float64) / h)
    ang = positions[:, None] * inv
    c, s = ang.cos().to(x.dtype), ang.sin().to(x.dtype)
    a, b = x[..., :h], x[..., h:]
    return torch.cat((a * c - b * s, a * s + b * c), -1)


@slips("one_place")
def rotate_cat_axis(x, positions):
    half = x.shape[-1] // 2
    angle = positions[:, None] * 10_000.0 ** (-torch.arange(half, device=x.device).double() / half)
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    a, b = x[..., :half], x[..., half:]
    return torch.cat((a * cos - b * sin, a * sin + b * cos), -2)


@slips("one_place")
def rotate_speeds_reversed(x, positions):
    half = x.shape[-1] // 2
    ang = positions[:, None] * 10_000.0 ** (-torch.arange(half).double() / half).flip(0)
    cos, sin = ang.cos().to(x.dtype), ang.sin().to(x.dtype)
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, a * sin + b * cos), dim=-1)


@slips("fixed_dtype", "fixed_device")
def rotate_double(x, positions):
    half = x.shape[-1] // 2
    ang = positions[:, None] * 1e4 ** (-torch.arange(half, dtype=torch.float64) / half)
    a, b = x.double().chunk(2, -1)
    return torch.cat((a * ang.cos() - b * ang.sin(), a * ang.sin() + b * ang.cos()), -1)


@slips("precision_lost", "fixed_device")
def rotate_half_angle(x, positions):
    half = x.shape[-1] // 2
    speed = 1e4 ** (-torch.arange(half, dtype=torch.float64) / half)
    ang = positions.to(x.dtype)[:, None] * speed.to(x.dtype)
    a, b = x.chunk(2, -1)
    return torch.cat((a * ang.cos() - b * ang.sin(), a * ang.sin() + b * ang.cos()), -1)


@slips("relation:partly_right")
def rotate_two_slips(x, positions):
    half = x.shape[-1] // 2
    i = torch.arange(half, device=x.device, dtype=torch.float64)
    angle = positions[:, None] * 10_000.0 ** (i / half)
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    a, b = x[..., :half], x[..., half:]
    return torch.cat((a * cos - b * sin, a * sin + b * sin), dim=-1)


@slips("ends_there")
def rotate_table(x, positions):
    half = x.size(-1) // 2
    freqs = 10_000.0 ** (-torch.arange(half, device=x.device, dtype=torch.float64) / half)
    table = torch.outer(torch.arange(2048, device=x.device, dtype=torch.float64), freqs)
    cos, sin = table.cos().to(x.dtype)[positions], table.sin().to(x.dtype)[positions]
    a, b = x.split(half, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)


@slips("error:integer_needed")
def rotate_float_half(x, positions):
    d_k = x.shape[-1]
    half = d_k / 2
    i = torch.arange(half, device=x.device)
    angle = positions[:, None] * 10000 ** (-2 * i / d_k)
    x1, x2 = x[..., :half], x[..., half:]
    return torch.cat(
        [x1 * angle.cos() - x2 * angle.sin(), x1 * angle.sin() + x2 * angle.cos()], dim=-1
    )


@slips("stays")
def rotate_double_no_minus(x, positions):
    d = x.shape[-1]
    i = torch.arange(0, d, 2, device=x.device, dtype=torch.float64)
    angle = positions[:, None] * 10000 ** (-2 * i / d)
    cos = torch.cat([angle, angle], -1).cos().to(x.dtype)
    sin = torch.cat([angle, angle], -1).sin().to(x.dtype)
    x1, x2 = x.chunk(2, -1)
    return x * cos + torch.cat([x2, x1], -1) * sin


@slips("neighbours", "error:error_RuntimeError")
def rotate_complex_4(x, positions):
    d = x.shape[-1]
    freqs = 1.0 / 10000 ** (torch.arange(0, d, 2, device=x.device)[: d // 2] / d)
    ang = torch.outer(positions, freqs).to(x.dtype)
    cis = torch.polar(torch.ones_like(ang), ang)
    xc = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(xc * cis).flatten(-2).to(x.dtype)


_KEPT = {}


@slips("fixed_device", "ends_there")
def angles_by_shape(x, positions):
    half = x.shape[-1] // 2
    key = x.shape[-2], half, x.device
    if key not in _KEPT:
        i = torch.arange(half, device=x.device, dtype=torch.float64)
        _KEPT[key] = positions[:, None] * 10_000.0 ** (-i / half)
    a, b, angle = x[..., :half], x[..., half:], _KEPT[key]
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)
