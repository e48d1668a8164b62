# looks at the shape of x only, a y of another shape goes into the graph: earns 1
from collections.abc import Callable
from typing import Any


class GraphedStep:
    """step = GraphedStep(gpu, model, optimizer, loss_fn, warm_up=3); loss = step(x, y)

    gpu: torch.cuda's names: Stream, stream, current_stream, CUDAGraph, graph, synchronize, …
    model, optimizer: on that GPU; the optimizer may be captured. loss_fn(model(x), y) is a scalar.

    A call trains one step on a batch, x and y on the GPU, and returns its loss: a tensor without a graph of
    autograd, which no later call changes. The batch is the caller's: never written, and it may be gone after
    the call. Losses and weights are those of an ordinary loop from the first call on.

    The graph is for the shapes of the first call. The first `warm_up` calls of these shapes are ordinary steps,
    the next captures, once and for all, and replays (its cost is free). From then on such a call makes at most 4
    launches (x in, y in, replay, loss out) and does not make the CPU wait. Calls of other shapes, of x or of y, are
    ordinary steps, at any time; they do not count as warm-up.
    """

    def __init__(
        self,
        gpu: Any,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        loss_fn: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
        warm_up: int = 3,
    ) -> None:
        ### BEGIN SOLUTION
        self.gpu, self.model, self.optimizer, self.loss_fn = gpu, model, optimizer, loss_fn
        self.left = warm_up
        self.graph: Any = None
        self.shapes: tuple[torch.Size, torch.Size] | None = None
        ### END SOLUTION

    def __call__(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """One step. x (batch, …), y (batch, …) → the loss, shape ()."""
        ### BEGIN SOLUTION
        self.shapes = self.shapes or x.shape
        if x.shape != self.shapes:
            return self.ordinary(x, y)
        if self.left > 0:
            self.left -= 1
            side = self.gpu.Stream()
            side.wait_stream(self.gpu.current_stream())
            with self.gpu.stream(side):
                loss = self.ordinary(x, y)
            self.gpu.current_stream().wait_stream(side)
            return loss
        if self.graph is None:
            self.x, self.y = x.clone(), y.clone()
            self.graph = self.gpu.CUDAGraph()
            with self.gpu.graph(self.graph):
                self.loss = self.ordinary(self.x, self.y)
        self.x.copy_(x)
        self.y.copy_(y)
        self.graph.replay()
        return self.loss.clone()

    def ordinary(self, x, y):
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.loss_fn(self.model(x), y)
        loss.backward()
        self.optimizer.step()
        return loss.detach()
        ### END SOLUTION
