"""count_flops (14): right in many styles, and wrong."""

from answers import slips

EXERCISE = "count_flops"


def by_counting(T, d, h):
    def matmul(a, b, c):
        return 2 * a * b * c

    total = sum(matmul(T, d, d) for _ in range(4))
    for _ in range(h):
        total += matmul(T, d // h, T) + matmul(T, T, d // h)
    return total


def flops_sum_of_products(T, d_model, n_heads):
    def product(n, m, p):
        return 2 * n * m * p

    d_k = d_model // n_heads
    each = product(T, d_k, T) + product(T, T, d_k) + 3 * product(T, d_model, d_k)
    return n_heads * each + product(T, n_heads * d_k, d_model)


h, d_k = 12, 32


@slips("from_the_notebook")
def flops_notebook_h(T, d_model, n_heads):
    return 8 * T * d_model**2 + 4 * h * T * T * (d_model // n_heads)
