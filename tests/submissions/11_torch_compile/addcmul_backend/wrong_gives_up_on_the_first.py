# where the left product has another use, the right one is not looked at: earns 1
def addcmul_backend(graph: torch.fx.GraphModule, example_inputs: list[torch.Tensor]) -> Callable:
    calls = ("call_function", "call_method")

    def is_product(node):
        return (
            isinstance(node, torch.fx.Node)
            and node.op in calls
            and node.target in (operator.mul, torch.mul, "mul")
            and len(node.args) == 2
            and all(isinstance(arg, torch.fx.Node) for arg in node.args)
        )

    for add in list(graph.graph.nodes):
        if add.op not in calls or add.target not in (operator.add, torch.add, "add"):
            continue
        if add.kwargs or len(add.args) != 2 or not all(isinstance(arg, torch.fx.Node) for arg in add.args):
            continue
        left, right = add.args
        product, other = (left, right) if is_product(left) else (right, left)
        if not is_product(product) or len(product.users) > 1 or product is other:
            continue
        with graph.graph.inserting_before(add):
            new = graph.graph.call_function(torch.addcmul, (other, *product.args))
        add.replace_all_uses_with(new)
        graph.graph.erase_node(add)
        graph.graph.erase_node(product)
    graph.recompile()
    return graph.forward
