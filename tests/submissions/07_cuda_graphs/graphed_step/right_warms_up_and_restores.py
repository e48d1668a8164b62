import copy


class GraphedStep:
    """Warm-up with the first batch before anything counts, then everything back as it was."""

    def __init__(self, gpu, model, optimizer, loss_fn, warm_up=3):
        self.gpu, self.model, self.optimizer, self.loss_fn = gpu, model, optimizer, loss_fn
        self.warm_up, self.graph = warm_up, None

    def once(self, x, y):
        self.optimizer.zero_grad(set_to_none=False)
        loss = self.loss_fn(self.model(x), y)
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def capture(self, x, y):
        self.x, self.y = x.clone(), y.clone()
        model_was = {k: v.clone() for k, v in self.model.state_dict().items()}
        side = self.gpu.Stream()
        side.wait_stream(self.gpu.current_stream())
        with self.gpu.stream(side):
            for _ in range(self.warm_up):
                self.once(self.x, self.y)
        self.gpu.current_stream().wait_stream(side)
        with torch.no_grad():
            for k, v in self.model.state_dict().items():
                v.copy_(model_was[k])
            for state in self.optimizer.state.values():
                for v in state.values():
                    if torch.is_tensor(v):
                        v.zero_()
        self.graph = self.gpu.CUDAGraph()
        with self.gpu.graph(self.graph):
            self.loss = self.once(self.x, self.y)

    def __call__(self, x, y):
        if self.graph is None:
            self.capture(x, y)
        if x.shape != self.x.shape or y.shape != self.y.shape:
            return self.once(x, y)
        self.x.copy_(x)
        self.y.copy_(y)
        self.graph.replay()
        return self.loss.clone()
