"""Where a tensor's numbers come from, told without numbers: helpers/simulator/sources.py."""

import torch

from helpers.simulator.sources import Sources


def test_a_copy_into_one_of_two_buffers_ends_what_that_one_held() -> None:
    one, two = torch.empty(2, 4, 4, device="meta")
    pages = [torch.empty(4, 4, device="meta") for _ in range(3)]
    with Sources(dict(enumerate(pages))) as sources:
        one.copy_(pages[0])
        two.copy_(pages[1])
        one.copy_(pages[2])
        kept = torch.stack([(x @ x).sum() for x in (one, two)])
    assert [set(product.of) for product in sources.products] == [{2}, {1}]
    assert sources.of(kept) == {1, 2, *sources.products}
    assert all(product.flops == 2 * 4**3 and product.name == "aten.mm" for product in sources.products)


def test_written_elements_and_products_that_arrive() -> None:
    x, w = torch.empty(8, 4, device="meta"), torch.empty(4, 6, device="meta")
    with Sources({"x": x, "w": w}) as sources:
        result = torch.empty_like(lost := x @ w)  # of its shape, and of none of its numbers
        assert not sources.of(result)
        result[:1].copy_(lost[:1])
        assert sources.written(result, {"x", "w"}) == 6
        torch.mm(x[2:], w, out=result[2:])
        result[4:6].zero_()
        columns = torch.empty(8, 6, device="meta")
        columns[:, :2] = x @ w[:, :2]
    assert sources.written(result, {"x", "w"}) == 6 + 12 + 12
    assert sources.of(result) == {"x", "w", *sources.products[:2]}
    assert sources.written(columns, {"x", "w"}) == 16


def test_in_place_an_operator_keeps_what_there_was() -> None:
    a, b = torch.ones(2), torch.ones(2)
    with Sources({"a": a, "b": b}) as sources:
        c = a * 2
        c += b
        a.fill_(3)
    assert sources.of(c) == {"a", "b"}
    assert not sources.of(a)


def test_in_place_each_part_keeps_its_own() -> None:
    a, x = torch.ones(4), torch.ones(8)
    with Sources({"a": a}) as sources:
        x[:4].copy_(a)
        x.mul_(2)
        x[2:6].add_(1)
    assert sources.written(x, {"a"}) == 4
    assert sources.of(x[2:4]) == {"a"}
    assert not sources.of(x[4:])


def test_products_that_are_spread() -> None:
    x, w, out = torch.empty(8, 4), torch.empty(4, 6), torch.zeros(8, 6)
    with Sources({}) as sources:
        for spread in (
            lambda p: out.add_(p.sum()),
            lambda p: out.copy_(p[:1]),
            lambda p: p[0].expand(8, 6).clone(),
        ):
            spread(x @ w)
        lost, sources.spread = sources.spread, set()
        kept = [x @ w for _ in range(3)]
        out[:4] += kept[0][4:]
        torch.cat([kept[1].relu_() / kept[1].sum(1, keepdim=True), kept[2]])
    assert lost == {*sources.products[:3]}
    assert not sources.spread
