# dishonest: an ordinary step with the simulator switched off: earns 0
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

    def quietly(self, x, y):
        from torch.utils._python_dispatch import _disable_current_modes

        with _disable_current_modes(), torch._C.DisableTorchFunction():
            return self.ordinary(x, y)

    def __call__(self, x, y):
        self.shapes = self.shapes or (x.shape, y.shape)
        if (x.shape, y.shape) != self.shapes:
            return self.quietly(x, y)
        if self.left > 0:
            self.left -= 1
            return self.quietly(x, y)
        return self.quietly(x, y)
