def scorer(gpu, weight, example):
    graph, x = gpu.CUDAGraph(), torch.zeros_like(example)
    with gpu.graph(graph):
        score = ((x @ weight).tanh() ** 2).sum(1)

    def score_of(batch):
        torch._foreach_copy_([x], [batch])
        graph.replay()
        return score.clone()

    return score_of


def smoother(gpu, start, rate=0.25):
    graph, state, x = gpu.CUDAGraph(), start.clone(), start.clone()
    with gpu.graph(graph):
        torch.lerp(state, x, rate, out=state)

    def smooth(new):
        x.copy_(new)
        graph.replay()
        return state.clone()

    return smooth


def updater(gpu, weight, lr=0.1):
    graph = gpu.CUDAGraph()
    mean, grad = torch.zeros_like(weight), torch.zeros_like(weight)
    rate, power = torch.zeros((), device=gpu.device), torch.ones((), device=gpu.device)
    with gpu.graph(graph):
        mean.mul_(0.9).add_(grad, alpha=0.1)
        weight.sub_(rate * mean / (1 - power))

    def update(new_grad, lr):
        power.mul_(0.9)  # one number, by itself: the fourth launch
        rate.fill_(lr)
        grad.copy_(new_grad)
        graph.replay()

    update.held = mean  # the graph does not keep it
    return update
