# no cycle, but outputs keep their graph: earns 0
class ActivationLog:
    def __init__(self, model):
        self.outputs = outputs = {}
        self.handles = []
        for name, layer in model.named_children():

            def hook(layer, inputs, output, name=name):
                outputs[name] = output

            self.handles.append(layer.register_forward_hook(hook))

    def __del__(self):
        for handle in self.handles:
            handle.remove()
