# the finalizer's own argument keeps the log alive: earns 0
class ActivationLog:
    def __init__(self, model):
        self.outputs = outputs = {}
        self.handles = []
        for name, layer in model.named_children():

            def hook(layer, inputs, output, name=name):
                outputs[name] = output.detach()

            self.handles.append(layer.register_forward_hook(hook))
        weakref.finalize(self, self.close)

    def close(self):
        for handle in self.handles:
            handle.remove()
