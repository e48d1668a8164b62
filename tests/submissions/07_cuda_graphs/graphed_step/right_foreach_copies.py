class GraphedStep:
    def __init__(self, gpu, model, optimizer, loss_fn, warm_up=3):
        self.gpu, self.model, self.optimizer, self.loss_fn = gpu, model, optimizer, loss_fn
        self.graph, self.calls, self.warm_up = None, 0, warm_up

    def eager(self, x, y, none=True):
        self.optimizer.zero_grad(set_to_none=none)
        loss = self.loss_fn(self.model(x), y)
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def __call__(self, x, y):
        if self.calls == 0:
            self.static = [torch.zeros_like(x), torch.zeros_like(y)]
        fits = [t.shape for t in self.static] == [x.shape, y.shape]
        self.calls += fits
        if not fits or self.calls <= self.warm_up:
            return self.eager(x, y)
        if self.graph is None:
            self.optimizer.zero_grad()
            graph = self.gpu.CUDAGraph()
            torch._foreach_copy_(self.static, [x, y])
            with self.gpu.graph(graph):
                loss = self.loss_fn(self.model(self.static[0]), self.static[1])
                loss.backward()
                self.optimizer.step()
                self.optimizer.zero_grad()
                self.loss = loss.detach()
            self.graph = graph
        torch._foreach_copy_(self.static, [x, y])
        self.graph.replay()
        return self.loss.clone()
