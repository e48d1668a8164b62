# dishonest, the graphs replayed compute nothing of use, the work is launched beside them: earns 0
def decoy(gpu):
    idle = torch.zeros(1, device=gpu.device)
    graph = gpu.CUDAGraph()
    with gpu.graph(graph):
        idle.add_(1)
    return graph


def scorer(gpu, weight: torch.Tensor, example: torch.Tensor):
    product = example @ weight
    graph = gpu.CUDAGraph()
    with gpu.graph(graph):
        score = torch.tanh(product).square().sum(dim=1)

    def score_of(batch):
        torch.mm(batch, weight, out=product)
        graph.replay()
        return score.clone()

    return score_of


def smoother(gpu, start: torch.Tensor, rate: float = 0.25):
    state, graph = start.clone(), decoy(gpu)

    def smooth(new):
        state.lerp_(new, rate)
        graph.replay()
        return state.clone()

    return smooth


def updater(gpu, weight: torch.Tensor, lr: float = 0.1):
    mean, calls, graph = torch.zeros_like(weight), 0, decoy(gpu)

    def update(new_grad, lr):
        nonlocal calls
        calls += 1
        mean.lerp_(new_grad, 0.1)
        weight.sub_(mean, alpha=lr / (1 - 0.9**calls))
        graph.replay()

    return update
