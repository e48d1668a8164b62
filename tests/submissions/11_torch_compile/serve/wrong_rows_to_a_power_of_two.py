# rows padded up to a power of two: 16 for 9, 32 for 17, more than 1.5 times as many where most shapes are such: earns 1
def serve(
    model: Callable[[torch.Tensor], torch.Tensor],
) -> Callable[[torch.Tensor], torch.Tensor]:
    fast = torch.compile(model, dynamic=True)

    def answer(x):
        n, l, d = x.shape
        rows = n * l
        size = max(2, 1 << (rows - 1).bit_length())  # never 1, and few different sizes
        padded = F.pad(x.reshape(rows, d), (0, 0, 0, size - rows))
        y = fast(padded.contiguous().detach())
        return y[:rows].reshape(n, l, -1)

    return answer
