# logs linear layers only: earns 1
class ActivationLog:
    def __init__(self, model):
        self.outputs={}
        handles=[layer.register_forward_hook(_keeper(self.outputs,name)) for name,layer in ((n,m) for n,m in model.named_children() if isinstance(m,nn.Linear))]
        weakref.finalize(self,_remove,handles)
def _keeper(outputs,name):
    def keep(layer,inputs,output): outputs[name]=output.detach()
    return keep
def _remove(handles):
    for h in handles: h.remove()
