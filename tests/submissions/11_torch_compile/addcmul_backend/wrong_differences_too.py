# takes c - a * b for c + a * b, by its sign: earns 1
def addcmul_backend(graph, example_inputs):
    nodes = graph.graph

    def is_a(node, kinds):
        return (
            isinstance(node, torch.fx.Node)
            and node.target in kinds
            and not node.kwargs
            and len(node.args) == 2
            and all(isinstance(a, torch.fx.Node) for a in node.args)
        )

    for add in list(nodes.nodes):
        if not is_a(add, (operator.add, torch.add, "add", operator.sub, torch.sub, "sub")):
            continue
        minus = add.target in (operator.sub, torch.sub, "sub")
        for product, c in (add.args[::-1],) if minus else (add.args, add.args[::-1]):
            if is_a(product, (operator.mul, torch.mul, "mul")) and len(product.users) == 1 and product is not c:
                with nodes.inserting_before(add):
                    new = nodes.call_function(torch.addcmul, (c, *product.args), {"value": -1} if minus else {})
                add.replace_all_uses_with(new)
                nodes.erase_node(add)
                nodes.erase_node(product)
                break
    graph.recompile()
    return graph.forward
