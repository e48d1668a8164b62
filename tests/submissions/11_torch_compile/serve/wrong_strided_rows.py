# rows of another stride where x is a slice of wider rows, and so a third version: earns 0
def serve(
    model: Callable[[torch.Tensor], torch.Tensor],
) -> Callable[[torch.Tensor], torch.Tensor]:
    fast = torch.compile(model, dynamic=True)

    def answer(x):
        n, l, _ = x.shape
        rows = x.flatten(0, 1).detach()
        return fast(rows).unflatten(0, (n, l))

    return answer
