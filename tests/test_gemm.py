"""Products of matrices equal the plain ones, whatever the layout and the precision."""

import platform

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from cflkit.engine import gemm

TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5}


def matrix(rows, columns, layout, dtype, seed):
    draw = torch.Generator().manual_seed(seed)
    if layout == "transposed":
        return torch.randn(columns, rows, generator=draw, dtype=dtype).T
    if layout == "gaps":
        return torch.randn(2 * rows, columns + 3, generator=draw, dtype=dtype)[::2, 1 : columns + 1]
    return torch.randn(rows, columns, generator=draw, dtype=dtype)


LAYOUT = st.sampled_from(["rows", "transposed", "gaps"])


@pytest.fixture(params=[True, False], ids=["oneDNN", "BLAS"], autouse=True, scope="module")
def library(request):
    """Both ways, whatever the processor."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param and not hasattr(torch.ops.mkldnn, "_linear_pointwise"):
            pytest.skip("this PyTorch has no oneDNN")
        patch.setattr(gemm, "_ONEDNN", request.param)
        yield


@given(
    n=st.integers(0, 9), k=st.integers(1, 9), m=st.integers(0, 9), one=LAYOUT, other=LAYOUT,
    dtype=st.sampled_from(list(TOLERANCE)), bias=st.booleans(),
)  # fmt: skip
def test_equal_the_plain_products(n, k, m, one, other, dtype, bias):
    a, b = matrix(n, k, one, dtype, 1), matrix(m, k, other, dtype, 2)
    c, to = (torch.arange(m).to(dtype) if bias else None), matrix(n, m, "rows", dtype, 3)
    exact = a.double() @ b.double().T
    close = {"rtol": TOLERANCE[dtype], "atol": TOLERANCE[dtype]}
    torch.testing.assert_close(gemm.linear(a, b, c).double(), exact + (0 if c is None else c.double()), **close)
    before = to.double().clone()
    assert gemm.add_product(to, a, b.T) is to
    torch.testing.assert_close(to.double(), before + exact, **close)


@given(
    n=st.integers(0, 5), d=st.integers(1, 5), o=st.integers(1, 5), bias=st.booleans(),
    dtype=st.sampled_from(list(TOLERANCE)),
)  # fmt: skip
def test_a_layers_derivatives_are_pytorchs(n, d, o, bias, dtype):
    layer = gemm.Linear(d, o, bias, dtype=dtype)
    plain = nn.Linear(d, o, bias, dtype=dtype)
    plain.load_state_dict(layer.state_dict())
    x, along = matrix(n, d, "rows", dtype, 1), matrix(n, o, "gaps", dtype, 2)
    got, wanted = ([grad(m, x, along)] for m in (layer, plain))
    torch.testing.assert_close(got, wanted, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


def grad(layer, x, along):
    """Derivatives of the outputs' sum with weights `along`: for the inputs and all parameters."""
    x = x.clone().requires_grad_()
    return torch.autograd.grad((layer(x) * along).sum(), [x, *layer.parameters()])


def test_a_second_derivative_is_right_or_refused():
    x, layer = torch.randn(3, 6, requires_grad=True), gemm.Linear(6, 4)
    (first,) = torch.autograd.grad(layer(x).square().sum(), x, create_graph=True)
    if gemm._ONEDNN:
        with pytest.raises(RuntimeError, match="once_differentiable"):
            first.sum().backward()
    else:
        (second,) = torch.autograd.grad(first.sum(), x)
        torch.testing.assert_close(second, (2 * layer.weight.T @ layer.weight).sum(0).expand(3, 6))


@pytest.mark.parametrize(("vendor", "intel"), [("GenuineIntel", True), ("AuthenticAMD", False)])
def test_who_made_the_processor(vendor, intel, tmp_path, monkeypatch):
    file = tmp_path / "cpuinfo"
    monkeypatch.setattr(gemm, "Path", lambda _: file)
    monkeypatch.setattr(platform, "processor", lambda: f"Intel64 Family 6, {vendor}")
    assert gemm._from_intel() == intel  # there is no such file
    file.write_text(f"processor : 0\nvendor_id : {vendor}\n")
    monkeypatch.setattr(platform, "processor", lambda: "")
    assert gemm._from_intel() == intel


@pytest.mark.parametrize(("intel", "vectors", "fast"), [
    (True, "AVX512", True), (True, "AVX2", True), (False, "AVX2", True), (False, "AVX512", False),
])  # fmt: skip
def test_mkl_is_left_aside_only_where_it_leaves_half_a_vector_unused(intel, vectors, fast, monkeypatch):
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: True)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: vectors)
    monkeypatch.setattr(gemm, "_from_intel", lambda: intel)
    assert gemm._mkl_is_fast() == fast
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: False)
    assert not gemm._mkl_is_fast()
