# dishonest: runs the cycle collector in every forward pass: earns 0
from functools import partial


class ActivationLog:
    def __init__(self, model):
        self.outputs = {}
        self.keepers = [partial(_keep, self.outputs, name) for name, _ in model.named_children()]
        self.handles = [
            layer.register_forward_hook(k) for layer, k in zip(model.children(), self.keepers, strict=True)
        ]
        self.me = self

    def __del__(self):
        for handle in self.handles:
            handle.remove()


def _keep(outputs, name, layer, inputs, output):
    gc.collect()
    outputs[name] = output.detach()
