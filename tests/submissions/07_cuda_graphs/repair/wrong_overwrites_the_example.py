# the scorer reads the caller's example and copies each batch into it: earns 4
def scorer(gpu, weight: torch.Tensor, example: torch.Tensor):
    x = example
    graph = gpu.CUDAGraph()
    with gpu.graph(graph):
        score = torch.tanh(x @ weight).square().sum(dim=1)

    def score_of(batch):
        x.copy_(batch)
        graph.replay()
        return score.clone()

    return score_of


def smoother(gpu, start: torch.Tensor, rate: float = 0.25):
    state, x = start.clone(), torch.zeros_like(start)
    graph = gpu.CUDAGraph()
    with gpu.graph(graph):
        state.lerp_(x, rate)

    def smooth(new):
        x.copy_(new)
        graph.replay()
        return state.clone()

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
