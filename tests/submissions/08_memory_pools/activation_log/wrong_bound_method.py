# the hook is a method of the log, so the model holds the log: earns 0
from functools import partial


class ActivationLog:
    def __init__(self, model):
        self.outputs, self.handles = {}, []
        for name, layer in model.named_children():
            self.handles.append(layer.register_forward_hook(partial(self.keep, name)))

    def keep(self, name, layer, inputs, output):
        self.outputs[name] = output.detach()

    def __del__(self):
        for handle in self.handles:
            handle.remove()
