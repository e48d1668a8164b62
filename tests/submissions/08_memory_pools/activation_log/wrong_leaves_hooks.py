# no cycle, but the hooks stay on the model and hold the outputs: earns 0
class ActivationLog:
    def __init__(self, model):
        self.outputs = outputs = {}
        for name, layer in model.named_children():
            layer.register_forward_hook(
                lambda layer, inputs, output, name=name: outputs.__setitem__(name, output.detach())
            )
