# what was returned is written again eight calls later: earns 4
def scorer(gpu, weight: torch.Tensor, example: torch.Tensor):
    """score_of(batch) → tanh(batch @ weight)², summed over each row: a tensor of its own for each call.

    weight (n, m), example and every batch (rows, n), on the GPU; a batch may be gone after the call. A call of
    score_of: exactly one replay, at most 3 launches in all.
    """
    x = example.clone()
    graph = gpu.CUDAGraph()
    with gpu.graph(graph):
        score = torch.tanh(x @ weight).square().sum(dim=1)
    ring = [torch.empty_like(score) for _ in range(8)]

    def score_of(batch):
        x.copy_(batch)
        graph.replay()
        ring.append(ring.pop(0))
        return ring[-1].copy_(score)

    return score_of


def smoother(gpu, start: torch.Tensor, rate: float = 0.25):
    """smooth(new): state ← state + rate · (new − state), beginning with start; returns a copy of the state.

    start is the caller's and stays as it is. A call: exactly one replay, at most 3 launches in all.
    """
    state, x = start.clone(), torch.zeros_like(start)
    graph = gpu.CUDAGraph()
    with gpu.graph(graph):
        state.lerp_(x, rate)
    ring = [torch.empty_like(state) for _ in range(8)]

    def smooth(new):
        x.copy_(new)
        graph.replay()
        ring.append(ring.pop(0))
        return ring[-1].copy_(state)

    return smooth


def updater(gpu, weight: torch.Tensor, lr: float = 0.1):
    """update(grad, lr): the i-th call (i = 1, 2, …) does, in place,

        mean ← 0.9 · mean + 0.1 · grad,   weight ← weight − lr · mean ÷ (1 − 0.9ⁱ)

    mean begins as zeros; lr is a Python number and another one in each call. A call: exactly one replay, at
    most 4 launches in all.
    """
    mean, grad = torch.zeros_like(weight), torch.zeros_like(weight)
    scale, calls = torch.zeros_like(weight), 0
    graph = gpu.CUDAGraph()
    with gpu.graph(graph):
        mean.lerp_(grad, 0.1)
        weight.addcmul_(mean, scale, value=-1)

    def update(new_grad, lr):
        nonlocal calls
        calls += 1
        grad.copy_(new_grad)
        scale.fill_(lr / (1 - 0.9**calls))
        graph.replay()

    return update
