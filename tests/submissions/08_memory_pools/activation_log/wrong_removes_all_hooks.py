# clears every hook of the model, also those of another log: earns 0
class ActivationLog:
    def __init__(self, model):
        self.outputs = outputs = {}
        self.layers = [weakref.ref(layer) for layer in model.children()]
        for name, layer in model.named_children():

            def hook(layer, inputs, output, name=name):
                outputs[name] = output.detach()

            layer.register_forward_hook(hook)

    def __del__(self):
        for layer in self.layers:
            if layer() is not None:
                layer()._forward_hooks.clear()
