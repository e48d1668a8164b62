# what it returned is written again 64 replays later: earns 0
class GraphedStep:
    def __init__(self, gpu, model, optimizer, loss_fn, warm_up=3):
        self.gpu, self.model, self.optimizer, self.loss_fn = gpu, model, optimizer, loss_fn
        self.left, self.shapes, self.graph = warm_up, None, None

    def ordinary(self, x, y):
        self.optimizer.zero_grad()
        loss = self.loss_fn(self.model(x), y)
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def __call__(self, x, y):
        self.shapes = self.shapes or (x.shape, y.shape)
        if (x.shape, y.shape) != self.shapes:
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
            self.ring, self.at = [torch.empty_like(self.loss) for _ in range(64)], 0
        self.x.copy_(x)
        self.y.copy_(y)
        self.graph.replay()
        self.at = (self.at + 1) % 64
        return self.ring[self.at].copy_(self.loss)
