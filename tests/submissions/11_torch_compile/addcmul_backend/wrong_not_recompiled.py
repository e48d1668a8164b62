# the graph is changed and its code is not written again: earns 0
import operator

import torch


def addcmul_backend(graph, example_inputs):
    forward = graph.forward
    for add in list(graph.graph.nodes):
        if add.target in (operator.add, torch.add, "add") and isinstance(add.args[0], torch.fx.Node):
            product = add.args[0]
            if product.target in (operator.mul, torch.mul, "mul") and len(product.users) == 1:
                with graph.graph.inserting_before(add):
                    new = graph.graph.call_function(torch.addcmul, (add.args[1], *product.args))
                add.replace_all_uses_with(new)
    return forward
