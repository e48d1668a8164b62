# the closure reads the loop's last name: earns 0
class ActivationLog:
    def __init__(self, model):
        self.outputs = outputs = {}
        self.handles = []
        for name, layer in model.named_children():

            def hook(layer, inputs, output):
                outputs[name] = output.detach()

            self.handles.append(layer.register_forward_hook(hook))

    def __del__(self):
        for handle in self.handles:
            handle.remove()
