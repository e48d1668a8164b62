from functools import partial


def _store(outputs, name, layer, inputs, output):
    outputs[name] = output.data


class ActivationLog:
    def __init__(self, model):
        self.outputs = {}
        self._hooks = [
            layer.register_forward_hook(partial(_store, self.outputs, name)) for name, layer in model.named_children()
        ]

    def __del__(self):
        while self._hooks:
            self._hooks.pop().remove()
