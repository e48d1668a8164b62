# what was returned is written again eight calls later: earns 4
def scorer(gpu, weight: torch.Tensor, example: torch.Tensor):
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
    mean, grad = torch.zeros_like(weight), torch.zeros_like(weight)
    scale, calls = torch.zeros_like(weight), 0
    graph = gpu.CUDAGraph()
    with gpu.graph(graph):
        mean.lerp_(grad, 0.1)
        weight.addcmul_(mean, scale, value=-1)

    def update(new_grad, lr, held=mean):
        nonlocal calls
        calls += 1
        grad.copy_(new_grad)
        scale.fill_(lr / (1 - 0.9**calls))
        graph.replay()

    return update
