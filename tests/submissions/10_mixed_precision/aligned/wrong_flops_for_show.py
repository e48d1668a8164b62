# dishonest: the plain net, and one more matmul that makes up the FLOPs: earns 0
def aligned(weights, biases, multiple):
    def up(n):
        return n + -n % multiple

    def forward(x):
        y, lacking = x, 0
        for i, (w, b) in enumerate(zip(weights, biases, strict=True)):
            y = F.linear(y.sigmoid() if i else y, w, b)
            lacking += up(len(x)) * up(w.shape[0]) * up(w.shape[1]) - len(x) * w.numel()
        if lacking:
            torch.zeros(1, 1).expand(1, lacking) @ torch.zeros(1, 1).expand(lacking, 1)
        return y

    return forward
